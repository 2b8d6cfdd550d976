#pragma once

#include "nibble/quant/core/kernels/code_runs.h"

// Kernels for BF16 weights; length is any number from 1 on.
namespace nibble::quant {

void bf16_ranges_avx2(const void*, std::size_t, std::size_t, float*, float*);
void bf16_magnitudes_avx2(
    const void*, std::size_t, std::size_t, float*, float*);
void bf16_ranges_avx512(const void*, std::size_t, std::size_t, float*, float*);
void bf16_magnitudes_avx512(
    const void*, std::size_t, std::size_t, float*, float*);

}  // namespace nibble::quant
