#pragma once

#include <cstdint>

#include "nibble/quant/core/number_spec.h"

namespace nibble::quant {

// What llama-models' int4_mixed and fp8_mixed make of a weight
// (docs/formats/meta.md), whoever writes, reads or encodes it.

// Inputs that share an INT4 scale: 128, or fewer when a rank has no multiple of
// 128 of them. kUnsupported when 32 does not divide them.
[[nodiscard]] std::int64_t int4_mixed_group(std::int64_t rank_inputs);

[[nodiscard]] LayerSpec int4_mixed_spec(std::int64_t group);

// FP8 with a scale for each output and rank: rank_inputs of the `inputs` stand
// in one rank. With several ranks each codes its part of the activations by
// itself, and blocks keep both exact.
[[nodiscard]] LayerSpec fp8_mixed_spec(std::int64_t inputs,
                                       std::int64_t rank_inputs);

}  // namespace nibble::quant
