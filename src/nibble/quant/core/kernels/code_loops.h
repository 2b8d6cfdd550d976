#pragma once

#include "nibble/quant/core/kernels/code_runs.h"

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
  // The divisors of up to V::kLanes runs.
  class Scales {
   public:
    Scales(const float* scales, std::size_t count) {
      const auto scale = V::load_f32_or_one(scales, count);
      V::store_f32(scale_, scale);
      V::store_f32(reciprocal_, V::div(V::set(1.0F), scale));
    }

    [[nodiscard]] NIBBLE_INLINE Division at(std::size_t run) const {
      return {V::set(scale_[run]), V::set(reciprocal_[run])};
    }

   private:
    float scale_[V::kLanes];
    float reciprocal_[V::kLanes];
  };

  NIBBLE_INLINE typename V::Float operator()(typename V::Float x) const {
    const auto near = V::mul(x, reciprocal_);
    return V::fma(V::fnma(near, scale_, x), reciprocal_, near);
  }

  // For coders that need no correctly rounded quotient.
  [[nodiscard]] NIBBLE_INLINE typename V::Float reciprocal() const {
    return reciprocal_;
  }

 private:
  NIBBLE_INLINE Division(typename V::Float scale, typename V::Float reciprocal)
      : scale_(scale), reciprocal_(reciprocal) {}

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
  class Scales {
   public:
    Scales(const float* scales, std::size_t count) {
      const auto scale = V::load_f32_or_one(scales, count);
      const auto reciprocal = V::div(V::set(1.0F), scale);
      const auto high =
          V::floats(V::bit_and(V::bits(reciprocal), V::set(~0xFF)));
      V::store_f32(high_, high);
      // The difference is exact: 24 bits suffice.
      V::store_f32(low_,
                   V::mul(V::fnma(scale, high, V::set(1.0F)), reciprocal));
    }

    [[nodiscard]] NIBBLE_INLINE ShortDivision at(std::size_t run) const {
      return {V::set(high_[run]), V::set(low_[run])};
    }

   private:
    float high_[V::kLanes];
    float low_[V::kLanes];
  };

  NIBBLE_INLINE typename V::Float operator()(typename V::Float x) const {
    return V::fma(x, low_, V::mul(x, high_));
  }

 private:
  NIBBLE_INLINE ShortDivision(typename V::Float high, typename V::Float low)
      : high_(high), low_(low) {}

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

// DivideBy may be ShortDivision when scales are BF16 too.
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

// Codes of the last elements of a run, fewer than a block; coder.block(weights)
// gives those of a block, in order.
template <typename V, typename Type, typename Coder>
NIBBLE_INLINE void fill_rest(const Coder& coder,
                             const typename Type::Stored* weight,
                             std::size_t count,
                             std::uint8_t* codes) {
  V::store_part(codes, coder.block(Type::load_part(weight, count)), count);
}

// Codes of one run.
template <typename V, typename Type, typename Coder>
NIBBLE_INLINE void fill_run(const Coder& coder,
                            const typename Type::Stored* weight,
                            std::size_t length,
                            std::size_t fetch_ahead,
                            std::uint8_t* codes) {
  std::size_t i = 0;
  for (; i + V::kBlock <= length; i += V::kBlock) {
    fetch(weight + i, fetch_ahead, V::kBlock * sizeof(*weight));
    V::store(codes + i, coder.block(Type::load(weight + i)));
  }
  if (i < length) {
    fill_rest<V, Type>(coder, weight + i, length - i, codes + i);
  }
}

// Calls body(run, its divisor, its weights, its codes) for each run.
template <typename V, typename Type, typename Body>
NIBBLE_INLINE void for_each_run(const CodeRuns& job, const Body& body) {
  using Divide = typename Type::Divide;
  const auto* weight = static_cast<const typename Type::Stored*>(job.weight);
  std::uint8_t* codes = job.codes;
  for (std::size_t first = 0; first < job.runs; first += V::kLanes) {
    const std::size_t left = job.runs - first;
    const std::size_t count = left < V::kLanes ? left : V::kLanes;
    const typename Divide::Scales scales(job.scales + first, count);
    for (std::size_t run = 0; run < count; ++run) {
      body(first + run, scales.at(run), weight, codes);
      weight += job.length;
      codes += job.length;
    }
  }
}

// Makes a Coder(job, run, divisor) for each run.
template <typename V, typename Type, typename Coder>
void fill_runs(const CodeRuns& arguments) {
  const CodeRuns job = arguments;  // a copy that stores cannot alias
  for_each_run<V, Type>(job,
                        [&](std::size_t run,
                            const typename Type::Divide& divide,
                            const typename Type::Stored* weight,
                            std::uint8_t* codes) {
                          fill_run<V, Type>(Coder(job, run, divide),
                                            weight,
                                            job.length,
                                            job.fetch_ahead,
                                            codes);
                        });
}

template <typename V>
using WideBF16 = TypeBF16<V, Division<V>>;
template <typename V>
using ShortBF16 = TypeBF16<V, ShortDivision<V>>;

// Fill<V, Type<V>, kReference>, on narrower vectors where there are such and
// runs are shorter than a block.
template <typename V,
          template <typename, typename, bool>
          typename Fill,
          template <typename>
          typename Type,
          bool kReference>
void fill_by_length(const CodeRuns& job) {
  if constexpr (requires { typename V::Narrow; }) {
    if (job.length < V::kBlock) {
      using Narrow = typename V::Narrow;
      Fill<Narrow, Type<Narrow>, kReference>::run(job);
      return;
    }
  }
  Fill<V, Type<V>, kReference>::run(job);
}

// The kernels of a scheme, whose Fill<V, Type, kReference>::run is a CodeFn.
template <typename V, template <typename, typename, bool> typename Fill>
constexpr CodeKernels make_kernels() {
  return {{fill_by_length<V, Fill, TypeF32, false>,
           fill_by_length<V, Fill, TypeF32, true>},
          {fill_by_length<V, Fill, TypeF16, false>,
           fill_by_length<V, Fill, TypeF16, true>},
          {fill_by_length<V, Fill, WideBF16, false>,
           fill_by_length<V, Fill, WideBF16, true>},
          {fill_by_length<V, Fill, ShortBF16, false>,
           fill_by_length<V, Fill, ShortBF16, true>}};
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
