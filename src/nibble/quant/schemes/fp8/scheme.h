#pragma once

#include "nibble/base/cpu.h"
#include "nibble/quant/core/scheme.h"

namespace nibble::quant {

// FP8 E4M3: 8-bit floats times a scale; a scale a row, a tensor or a block of
// 128 x 128; symmetric (docs/numerics.md).
[[nodiscard]] const Scheme& fp8_scheme();

namespace fp8 {

// Scheme::encode with the instruction set chosen by the caller, who has
// checked cpu_has(isa).
[[nodiscard]] Quantized encode(const NumberSpec& spec,
                               ConstTensorView weight,
                               const EncodeOptions& options,
                               Isa isa);

}  // namespace fp8
}  // namespace nibble::quant
