#pragma once

#include <span>

#include <nlohmann/json_fwd.hpp>

#include "nibble/quant/core/format.h"

namespace nibble::quant::compressed_tensors {

// quantization_config for these layers; keys come out sorted. One scheme gets
// the target "Linear"; several get regular expressions that fit each module
// of one group and none of another.
[[nodiscard]] nlohmann::json make_config_entry(
    std::span<const LayerDecision> layers);

}  // namespace nibble::quant::compressed_tensors
