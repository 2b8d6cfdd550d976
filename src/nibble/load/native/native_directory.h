#pragma once

#include <filesystem>

#include "nibble/load/checkpoint_directory.h"

namespace nibble::load {

// Opens what the PyTorch-native stacks write, seen as the Hugging Face form of
// the same model: a directory of Meta's consolidated.NN.pth, a model*.pth of
// gpt-fast, or a directory that holds exactly one of these. The architecture
// comes from config.json beside the weights, else from params.json, else (for
// gpt-fast) from the directory's name as there. Packed weights are declared in
// the config's quantization_config with quant_method "meta" or "gpt-fast".
// False when path is none of these (or has safetensors, which win).
[[nodiscard]] bool open_native(const std::filesystem::path& path,
                               CheckpointDirectory& checkpoint);

}  // namespace nibble::load
