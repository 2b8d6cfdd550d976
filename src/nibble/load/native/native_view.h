#pragma once

#include <cstdint>
#include <memory>

#include <nlohmann/json_fwd.hpp>

#include "nibble/container/remap.h"

namespace nibble::load {

// Layouts of the PyTorch-native stacks, whose names meta_view.h reads.
enum class NativeLayout { kMeta, kGptFast };

// The inverse of view_as_hugging_face: rank `rank` of `ranks` of a checkpoint
// in Hugging Face's form, under the names and in the shapes of Meta's shards
// (Llama 4: as shipped, wqkv and fc1 fused) or of gpt-fast's model.pth (one
// rank, wqkv fused). Elements are read through; none is copied.
// kInvalidArgument when ranks does not divide heads, widths or the vocabulary,
// with the largest number that does; kUnsupported for what the layout cannot
// hold (biases, a head_dim other than hidden / heads, experts in gpt-fast).
[[nodiscard]] std::unique_ptr<container::RemappedReader> view_as_native(
    std::shared_ptr<const container::CheckpointReader> source,
    const nlohmann::json& config,
    NativeLayout layout,
    std::int64_t ranks,
    std::int64_t rank);

// params.json for such shards. kUnsupported when the config says something
// that params.json cannot (irregular rope or expert layers, another rope
// scaling than Llama 3's).
[[nodiscard]] nlohmann::json params_from_config(const nlohmann::json& config);

}  // namespace nibble::load
