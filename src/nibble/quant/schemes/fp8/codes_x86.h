#pragma once

#include "nibble/quant/core/code_runs.h"

namespace nibble::quant::fp8 {

// [0] exact, [1] reference arithmetic.
struct CodeKernels {
  CodeFn f32[2];
  CodeFn bf16[2];
  CodeFn f16[2];
};

[[nodiscard]] const CodeKernels& code_kernels_avx2();
[[nodiscard]] const CodeKernels& code_kernels_avx512();

}  // namespace nibble::quant::fp8
