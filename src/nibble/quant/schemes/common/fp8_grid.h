#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "nibble/quant/core/number_spec.h"

namespace nibble::quant {

// Largest absolute value; NaN when a value is NaN, 0 for none.
[[nodiscard]] float absolute_maximum(std::span<const float> values);

// The nearest E4M3 number to value / scale, ties to even, saturating at +-448,
// times scale. Equals f8e4m3_to_float(float_to_f8e4m3(value / scale)) * scale.
void round_to_fp8_grid(std::span<const float> values,
                       float scale,
                       std::span<float> rounded);

// One token's activations as FP8 inputs see them: by the dynamic scale of the
// token (kToken) or of each run of input.group columns (kGroup), or by
// static_scale (kTensor).
void round_token_to_fp8(std::span<const float> token,
                        const NumberSpec& input,
                        std::optional<float> static_scale,
                        std::span<float> rounded);

}  // namespace nibble::quant
