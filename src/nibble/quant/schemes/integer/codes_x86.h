#pragma once

#include "nibble/quant/core/code_runs.h"

namespace nibble::quant::integer {

[[nodiscard]] const CodeKernels& code_kernels_avx2();
[[nodiscard]] const CodeKernels& code_kernels_avx512();

}  // namespace nibble::quant::integer
