#pragma once

#include "nibble/base/cpu.h"
#include "nibble/quant/core/kernels/encode_tile.h"

namespace nibble::quant::fp8 {

// Functions that choose FP8 E4M3 codes for weights of a dtype and
// scales of a dtype: w / scale rounded to the nearest code, ties to even,
// saturating at +-448.
//   exact:     the quotient is float32
//   reference: the quotient is rounded to the weight's type first
[[nodiscard]] CodeFunctions code_functions(DType dtype,
                                           DType scale_dtype,
                                           Numerics numerics,
                                           Isa isa);

// The ValueFn of E4M3 bytes, whose zero is not used; all instruction sets
// agree.
[[nodiscard]] ValueFn value_function(Isa isa);

}  // namespace nibble::quant::fp8
