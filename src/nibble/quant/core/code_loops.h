#pragma once

#include <cstring>

#include "nibble/quant/core/code_runs.h"

// Only for sources built for one instruction set, after the header of its
// vectors: the loop over runs that the schemes' kernels share.
namespace nibble::quant {
namespace {

// Types of weights on vectors V: loading a block, the type's rounding of a
// float32 result, and the order of bytes that loading and packing lead to.
template <typename V>
struct TypeF32 {
  using Stored = float;

  static typename V::Block load(const float* from) { return V::load_f32(from); }

  static typename V::Float round(typename V::Float x) { return x; }

  static typename V::Int order(typename V::Int x) { return V::order_parts(x); }
};

template <typename V>
struct TypeF16 {
  using Stored = std::uint16_t;

  static typename V::Block load(const std::uint16_t* from) {
    return V::load_f16(from);
  }

  static typename V::Float round(typename V::Float x) {
    return V::round_f16(x);
  }

  static typename V::Int order(typename V::Int x) { return V::order_parts(x); }
};

template <typename V>
struct TypeBF16 {
  using Stored = std::uint16_t;

  static typename V::Block load(const std::uint16_t* from) {
    return V::load_bf16(from);
  }

  // Nearest, ties to even; x is not NaN.
  static typename V::Float round(typename V::Float x) {
    const auto bits = V::bits(x);
    const auto odd = V::bit_and(V::template shift_right<16>(bits), V::set(1));
    const auto sum = V::add(V::add(bits, V::set(0x7FFF)), odd);
    return V::floats(V::bit_and(sum, V::set(static_cast<int>(0xFFFF0000U))));
  }

  static typename V::Int order(typename V::Int x) { return V::order_pairs(x); }
};

// x / scale rounded to float32, from reciprocal = 1 / scale rounded to float32
// (Markstein, "Computation of elementary functions on the IBM RISC System/6000
// processor", 1990, theorem on division): the product is off by a unit at
// most, the remainder of the fused step is exact, and one correction gives the
// correctly rounded quotient. A division instruction would take five times as
// long.
template <typename V>
inline __attribute__((always_inline)) typename V::Float quotient(
    typename V::Float x,
    typename V::Float scale,
    typename V::Float reciprocal) {
  const auto near = V::mul(x, reciprocal);
  return V::fma(V::fnma(near, scale, x), reciprocal, near);
}

// Calls Coder(job, run) for each run and its block(weights) for each block of
// the run. A block that the run does not fill goes through a copy.
template <typename V, typename Type, typename Coder>
void fill_runs(const CodeRuns& job) {
  using Stored = typename Type::Stored;
  const auto* weight = static_cast<const Stored*>(job.weight);
  std::uint8_t* codes = job.codes;
  for (std::size_t r = 0; r < job.runs; ++r) {
    const Coder coder(job, r);
    std::size_t i = 0;
    for (; i + V::kBlock <= job.length; i += V::kBlock) {
      V::store(codes + i, Type::order(coder.block(Type::load(weight + i))));
    }
    if (i < job.length) {
      Stored rest[V::kBlock] = {};
      std::uint8_t rest_codes[V::kBlock];
      std::memcpy(rest, weight + i, (job.length - i) * sizeof(Stored));
      V::store(rest_codes, Type::order(coder.block(Type::load(rest))));
      std::memcpy(codes + i, rest_codes, job.length - i);
    }
    weight += job.length;
    codes += job.length;
  }
}

}  // namespace
}  // namespace nibble::quant
