#include <cstdint>
#include <cstring>

#include "nibble/backend/cpu/kernels.h"

namespace nibble::backend::cpu {
namespace {

// 128-bit vectors of the compiler (GCC and Clang): SSE2 on x86-64, NEON on
// AArch64, plain code elsewhere.
struct V {
  using F = float __attribute__((vector_size(16)));
  using U = std::uint32_t __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int kTokens = 2;

  static F set(float value) { return F{value, value, value, value}; }

  static F load(const float* from) {
    F value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }

  static F load(const Bf16* from) {
    return reinterpret_cast<F>(widened(from) << 16);
  }

  // With the half's exponent and mantissa in the float's places, a product
  // with 2^112 moves the exponent's bias, for subnormals as well. Infinity and
  // NaN, which are 2^16 and more then, get the float's highest exponent.
  static F load(const F16* from) {
    const U bits = widened(from);
    const F moved = reinterpret_cast<F>((bits & 0x7FFF) << 13) * 0x1p112F;
    const U special = reinterpret_cast<U>(moved >= set(65536.0F)) & 0x7F800000u;
    return reinterpret_cast<F>(reinterpret_cast<U>(moved) | special |
                               ((bits & 0x8000) << 16));
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

 private:
  // Four 16-bit patterns as 32-bit numbers.
  template <typename T>
  static U widened(const T* from) {
    using Narrow = std::uint16_t __attribute__((vector_size(8)));
    Narrow bits;
    std::memcpy(&bits, from, sizeof(bits));
    return __builtin_convertvector(bits, U);
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
