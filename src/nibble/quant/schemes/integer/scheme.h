#pragma once

#include "nibble/base/cpu.h"
#include "nibble/quant/core/scheme.h"

namespace nibble::quant {

// INT4 and INT8: two's complement codes times a scale, with or without a zero
// point; a scale a group of columns, a row or a tensor (docs/numerics.md).
[[nodiscard]] const Scheme& integer_scheme();

namespace integer {

// Scheme::encode with the instruction set chosen by the caller, who has
// checked cpu_has(isa). Any spec of 2 to 8 bits.
[[nodiscard]] Quantized encode(const NumberSpec& spec,
                               ConstTensorView weight,
                               const EncodeOptions& options,
                               Isa isa);

}  // namespace integer
}  // namespace nibble::quant
