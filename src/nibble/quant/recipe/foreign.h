#pragma once

#include <optional>

#include <nlohmann/json_fwd.hpp>

namespace nibble::quant {

// Recipes that other programs wrote, said in ours. Two forms are known by
// their keys:
//
// - torchchat's quantization options, {"linear:int4": {"groupsize": 128}};
// - the quantization_config of a compressed-tensors checkpoint (or its whole
//   config.json), {"config_groups": {...}, "ignore": [...]}.
//
// What has no equivalent is kBadRecipe, except what leaves weights as they are
// (an embedding's bits, the run's dtype and device): that is said in the
// description and in the log. Returns nothing for another form.
[[nodiscard]] std::optional<nlohmann::json> translate_foreign_recipe(
    const nlohmann::json& recipe);

}  // namespace nibble::quant
