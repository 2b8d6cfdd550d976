#pragma once

#include "nibble/quant/core/kernels/code_runs.h"

namespace nibble::quant::fp8 {

[[nodiscard]] const CodeKernels& code_kernels_avx2();
[[nodiscard]] const CodeKernels& code_kernels_avx512();

void values_avx2(const std::uint8_t*, std::size_t, float, float, float*);
void values_avx512(const std::uint8_t*, std::size_t, float, float, float*);

}  // namespace nibble::quant::fp8
