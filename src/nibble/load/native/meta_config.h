#pragma once

#include <nlohmann/json_fwd.hpp>

#include "nibble/load/native/meta_shards.h"

namespace nibble::load {

// The config.json of the Hugging Face form of a checkpoint in Meta's layout:
// what params.json says, what the shapes of the tensors say (they win over the
// rules for the MLP's width), and per generation what Meta's code has as
// constants: docs/formats/meta.md. kCorruptData when params.json and the
// tensors contradict each other; kUnsupported for vision-only variants.
[[nodiscard]] nlohmann::json config_from_params(const nlohmann::json& params,
                                                const MetaShards& shards);

}  // namespace nibble::load
