#pragma once

#include "nibble/quant/core/code_runs.h"

// Only for sources built for one instruction set, after the header of its
// vectors: the loop over runs that the schemes' kernels share.
#define NIBBLE_INLINE inline __attribute__((always_inline))

namespace nibble::quant {
namespace {

// x / scale rounded to float32, from the rounded reciprocal (Markstein,
// "Computation of elementary functions on the IBM RISC System/6000 processor",
// 1990, theorem on division): the product is off by a unit at most, the
// remainder of the fused step is exact, and one correction gives the correctly
// rounded quotient. A division instruction takes three times as long.
template <typename V>
class Division {
 public:
  explicit Division(float scale)
      : scale_(V::set(scale)), reciprocal_(V::set(1.0F / scale)) {}

  NIBBLE_INLINE typename V::Float operator()(typename V::Float x) const {
    const auto near = V::mul(x, reciprocal_);
    return V::fma(V::fnma(near, scale_, x), reciprocal_, near);
  }

 private:
  typename V::Float scale_;
  typename V::Float reciprocal_;
};

// The same for x and scale of 8 significant bits, in one step less: the
// reciprocal is high (16 bits, so x * high is exact) plus low, good to 2^-39.
// A quotient of two 8-bit numbers that is not a float32, nor halfway between
// two, is further than 2^-32 from being halfway: the sum rounds as it does.
template <typename V>
class ShortDivision {
 public:
  explicit ShortDivision(float scale) {
    const float reciprocal = 1.0F / scale;
    std::uint32_t bits = 0;
    __builtin_memcpy(&bits, &reciprocal, sizeof bits);
    bits &= 0xFFFFFF00U;
    float high = 0;
    __builtin_memcpy(&high, &bits, sizeof high);
    // Both operations inside are exact: 24 bits suffice.
    const float low = (1.0F - scale * high) * reciprocal;
    high_ = V::set(high);
    low_ = V::set(low);
  }

  NIBBLE_INLINE typename V::Float operator()(typename V::Float x) const {
    return V::fma(x, low_, V::mul(x, high_));
  }

 private:
  typename V::Float high_;
  typename V::Float low_;
};

// Types of weights on vectors V: loading a block or the first elements of one,
// division by a scale, the type's rounding of a float32 result, and the order
// of bytes that loading and packing lead to.
template <typename V>
struct TypeF32 {
  using Stored = float;
  using Divide = Division<V>;

  static typename V::Block load(const float* from) { return V::load_f32(from); }

  static typename V::Block load_part(const float* from, std::size_t count) {
    return V::load_f32_part(from, count);
  }

  static typename V::Float round(typename V::Float x) { return x; }

  static typename V::Int order(typename V::Int x) { return V::order_parts(x); }
};

template <typename V>
struct TypeF16 {
  using Stored = std::uint16_t;
  using Divide = Division<V>;

  static typename V::Block load(const std::uint16_t* from) {
    return V::load_f16(from);
  }

  static typename V::Block load_part(const std::uint16_t* from,
                                     std::size_t count) {
    return V::load_f16_part(from, count);
  }

  static typename V::Float round(typename V::Float x) {
    return V::round_f16(x);
  }

  static typename V::Int order(typename V::Int x) { return V::order_parts(x); }
};

// DivideBy is ShortDivision when scales are BF16 too.
template <typename V, typename DivideBy>
struct TypeBF16 {
  using Stored = std::uint16_t;
  using Divide = DivideBy;

  static typename V::Block load(const std::uint16_t* from) {
    return V::load_bf16(from);
  }

  static typename V::Block load_part(const std::uint16_t* from,
                                     std::size_t count) {
    return V::load_bf16_part(from, count);
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

// Asks the second-level cache for `bytes` at address + ahead; addresses beyond
// the end of a tensor are allowed.
NIBBLE_INLINE void fetch(const void* address,
                         std::size_t ahead,
                         std::size_t bytes) {
  for (std::size_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(static_cast<const char*>(address) + ahead + line, _MM_HINT_T1);
  }
}

// Makes a Coder(job, run) for each run; its block(weights) gives the packed
// codes of a block.
template <typename V, typename Type, typename Coder>
void fill_runs(const CodeRuns& arguments) {
  const CodeRuns job = arguments;  // a copy that stores cannot alias
  const auto* weight = static_cast<const typename Type::Stored*>(job.weight);
  std::uint8_t* codes = job.codes;
  for (std::size_t r = 0; r < job.runs; ++r) {
    const Coder coder(job, r);
    std::size_t i = 0;
    for (; i + V::kBlock <= job.length; i += V::kBlock) {
      fetch(weight + i, job.fetch_ahead, V::kBlock * sizeof(*weight));
      V::store(codes + i, Type::order(coder.block(Type::load(weight + i))));
    }
    if (i < job.length) {
      const std::size_t rest = job.length - i;
      V::store_part(codes + i,
                    Type::order(coder.block(Type::load_part(weight + i, rest))),
                    rest);
    }
    weight += job.length;
    codes += job.length;
  }
}

// The kernels of a scheme, whose Fill<V, Type, kReference>::run is a CodeFn.
template <typename V, template <typename, typename, bool> typename Fill>
constexpr CodeKernels make_kernels() {
  using Short = TypeBF16<V, ShortDivision<V>>;
  using Wide = TypeBF16<V, Division<V>>;
  return {{Fill<V, TypeF32<V>, false>::run, Fill<V, TypeF32<V>, true>::run},
          {Fill<V, TypeF16<V>, false>::run, Fill<V, TypeF16<V>, true>::run},
          {Fill<V, Wide, false>::run, Fill<V, Wide, true>::run},
          {Fill<V, Short, false>::run, Fill<V, Short, true>::run}};
}

// A ValueFn: Value::of(codes widened to 32 bits with their sign, zero, scale)
// gives the values of a vector.
template <typename V, typename Value>
void decode_run(const std::uint8_t* codes,
                std::size_t count,
                float zero,
                float scale,
                float* out) {
  const auto zeros = V::set(zero);
  const auto scales = V::set(scale);
  std::size_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    V::store_f32(out + i, Value::of(V::widen_i8(codes + i), zeros, scales));
  }
  if (i < count) {
    std::uint8_t last[V::kLanes] = {};
    float values[V::kLanes];
    __builtin_memcpy(last, codes + i, count - i);
    V::store_f32(values, Value::of(V::widen_i8(last), zeros, scales));
    __builtin_memcpy(out + i, values, (count - i) * sizeof(float));
  }
}

}  // namespace
}  // namespace nibble::quant
