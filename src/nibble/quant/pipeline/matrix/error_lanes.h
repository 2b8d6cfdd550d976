#pragma once

#include <cstddef>
#include <cstdint>

// Plain data only: sources built for one instruction set include this header.
namespace nibble::quant {

inline constexpr std::size_t kErrorLanes = 16;

// Partial sums: lane i has those of elements i, i + 16, i + 32 ...
struct ErrorLanes {
  float error[kErrorLanes] = {};
  float weight[kErrorLanes] = {};
  float decoded[kErrorLanes] = {};
  float product[kErrorLanes] = {};
  float max_abs[kErrorLanes] = {};
};

// Adds `steps` times 16 elements to lanes of zeros. weight: float, or bits of
// BF16. Products and sums are rounded one by one, as in portable code.
using ErrorFn = void (*)(const void* weight,
                         const float* decoded,
                         std::size_t steps,
                         ErrorLanes& lanes);

void f32_errors_avx2(const void*, const float*, std::size_t, ErrorLanes&);
void bf16_errors_avx2(const void*, const float*, std::size_t, ErrorLanes&);
void f32_errors_avx512(const void*, const float*, std::size_t, ErrorLanes&);
void bf16_errors_avx512(const void*, const float*, std::size_t, ErrorLanes&);

}  // namespace nibble::quant
