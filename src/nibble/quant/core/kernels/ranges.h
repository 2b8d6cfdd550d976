#pragma once

#include "nibble/base/cpu.h"
#include "nibble/quant/core/kernels/code_runs.h"
#include "nibble/tensor/dtype.h"

namespace nibble::quant {

// The function that finds the least and greatest weight (F32, F16 or BF16) of
// runs. With `magnitude` it gives high = the greatest magnitude and
// low = -high instead, which is cheaper. All instruction sets agree except in
// the sign of zeros.
[[nodiscard]] RangeFn range_function(DType dtype, bool magnitude, Isa isa);

}  // namespace nibble::quant
