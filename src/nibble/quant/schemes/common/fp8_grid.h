#pragma once

#include <optional>
#include <span>

#include "nibble/base/cpu.h"
#include "nibble/quant/core/number_spec.h"
#include "nibble/quant/schemes/common/input_loops.h"

namespace nibble::quant {

// The loops for a set of instructions that the processor has.
[[nodiscard]] const InputLoops& input_loops(Isa isa);

// One token's activations as FP8 inputs see them: on the E4M3 grid of the
// dynamic scale of the token (kToken, its absolute maximum / 448) or of each
// run of input.group columns (kGroup), or of static_scale (kTensor).
void round_token_to_fp8(const InputLoops& loops,
                        std::span<const float> token,
                        const NumberSpec& input,
                        std::optional<float> static_scale,
                        std::span<float> rounded);

}  // namespace nibble::quant
