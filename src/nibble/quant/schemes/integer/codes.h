#pragma once

#include "nibble/base/cpu.h"
#include "nibble/quant/core/kernels/encode_tile.h"

namespace nibble::quant::integer {

// Functions that choose integer codes for weights of a dtype and
// scales of a dtype:
// code = round(w / scale) + zero, within the limits of the run, ties to even.
//   exact:     the quotient is float32
//   reference: the quotient, and the sum with the zero point, are rounded to
//              the weight's type before they are rounded to an integer
[[nodiscard]] CodeFunctions code_functions(DType dtype,
                                           DType scale_dtype,
                                           Numerics numerics,
                                           Isa isa);

// The ValueFn of signed bytes; all instruction sets agree.
[[nodiscard]] ValueFn value_function(Isa isa);

}  // namespace nibble::quant::integer
