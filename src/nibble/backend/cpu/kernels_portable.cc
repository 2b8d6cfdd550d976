#include <cstdint>
#include <cstring>

#include "nibble/backend/cpu/kernels.h"
#include "nibble/tensor/convert.h"

namespace nibble::backend::cpu {
namespace {

// 128-bit vectors of the compiler (GCC and Clang): SSE2 on x86-64, NEON on
// AArch64, plain code elsewhere.
struct V {
  using F = float __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int kTokens = 2;

  static F set(float value) { return F{value, value, value, value}; }

  static F load(const float* from) {
    F value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }

  static F load(const Bf16* from) {
    return F{bf16_to_float(from[0].bits),
             bf16_to_float(from[1].bits),
             bf16_to_float(from[2].bits),
             bf16_to_float(from[3].bits)};
  }

  static F load(const F16* from) {
    return F{f16_to_float(from[0].bits),
             f16_to_float(from[1].bits),
             f16_to_float(from[2].bits),
             f16_to_float(from[3].bits)};
  }

  static void store(float* to, F value) {
    std::memcpy(to, &value, sizeof(value));
  }

  static F add(F a, F b) { return a + b; }

  static F sub(F a, F b) { return a - b; }

  static F mul(F a, F b) { return a * b; }

  static F div(F a, F b) { return a / b; }

  static F fma(F a, F b, F c) { return a * b + c; }

  // Both give b when either is NaN.
  static F max(F a, F b) { return a > b ? a : b; }

  static F min(F a, F b) { return a < b ? a : b; }

  static F zero_where_less(F x, F limit, F value) {
    return x < limit ? set(0) : value;
  }

  // value * 2^n, n in the low bits of exponent.
  static F scale_exponent(F value, F exponent) {
    using U = std::uint32_t __attribute__((vector_size(16)));
    return reinterpret_cast<F>(reinterpret_cast<U>(value) +
                               (reinterpret_cast<U>(exponent) << 23));
  }

  static void sum4(F a, F b, F c, F d, float* to) {
    const F ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) +
                 __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const F cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) +
                 __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store(to,
          __builtin_shufflevector(ab, cd, 0, 1, 4, 5) +
              __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
  }
};

}  // namespace
}  // namespace nibble::backend::cpu

#include "nibble/backend/cpu/kernel_body.h"

namespace nibble::backend::cpu {

const Kernels& kernels_portable() {
  return kKernels;
}

}  // namespace nibble::backend::cpu
