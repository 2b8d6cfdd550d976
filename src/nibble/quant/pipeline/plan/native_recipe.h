#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "nibble/load/native/native_view.h"
#include "nibble/quant/recipe/recipe.h"

namespace nibble::quant {

// What a native stack's quantizer does to which tensors, as a recipe over the
// modules of load::as_native.
//
// Meta: "int4_mixed" (Llama 4: routed and shared experts of all layers, groups
// of 128), "fp8_mixed" (Llama 4: routed experts, Llama 2 and 3: feed-forward
// layers, but for the first and the last layer). gpt-fast: "int8", "int4" (with
// group, 32 when 0) or "int4-g<group>": every linear.
//
// kInvalidArgument for an unknown name or group, kUnsupported for a scheme that
// the model or this program has no use for ("int4-gptq" needs calibration).
[[nodiscard]] Recipe native_recipe(load::NativeLayout layout,
                                   std::string_view scheme,
                                   std::int64_t group,
                                   const nlohmann::json& config);

// The recipe that changes no weight.
[[nodiscard]] Recipe copying_recipe();

}  // namespace nibble::quant
