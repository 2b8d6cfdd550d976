#pragma once

#include "nibble/quant/core/kernels/code_loops.h"
#include "nibble/quant/schemes/integer/codes_x86.h"

// Only for sources built for one instruction set.
namespace nibble::quant::integer {
namespace {

// Codes of blocks of one run; the vector form of fill() in codes.cc.
template <typename V, typename Type, bool kReference, bool kSymmetric>
class Coder {
 public:
  NIBBLE_INLINE Coder(const CodeRuns& job,
                      std::size_t run,
                      const typename Type::Divide& divide)
      : divide_(divide),
        zero_(kSymmetric ? 0 : job.zeros[run]),
        low_(job.low),
        high_(job.high) {}

  NIBBLE_INLINE typename V::Int block(const typename V::Block& weights) const {
    auto a = V::pack32(code(weights.part[0]), code(weights.part[1]));
    auto b = V::pack32(code(weights.part[2]), code(weights.part[3]));
    if constexpr (!kSymmetric && !kReference) {
      a = V::add16(a, V::set16(zero_));
      b = V::add16(b, V::set16(zero_));
    }
    return Type::order(V::clamp8(V::pack16(a, b), low_, high_));
  }

 private:
  NIBBLE_INLINE typename V::Int code(typename V::Float weight) const {
    auto x = divide_(weight);
    if constexpr (kReference) {
      x = Type::round(x);
      if constexpr (!kSymmetric) {
        x = Type::round(V::add(x, V::set(static_cast<float>(zero_))));
      }
    }
    return V::nearest(x);
  }

  typename Type::Divide divide_;
  int zero_;
  int low_;
  int high_;
};

// The same for BF16 weights and scales, where one product serves: a quotient of
// 8-bit significands that is not halfway between two integers is further than
// 2^-10 from being so. Its approximation, good to 2^-15 below 512, is rounded
// to steps of 2^-12 first: a tie becomes one, and anything else stays on its
// side.
template <typename V, bool kSymmetric>
class ShortCoder {
 public:
  NIBBLE_INLINE ShortCoder(const CodeRuns& job,
                           std::size_t run,
                           const Division<V>& divide)
      : reciprocal_(divide.reciprocal()),
        zero_(kSymmetric ? 0 : job.zeros[run]),
        low_(job.low),
        high_(job.high) {}

  NIBBLE_INLINE typename V::Int block(const typename V::Block& weights) const {
    auto a = V::join_words(code(weights.part[0]), code(weights.part[1]));
    auto b = V::join_words(code(weights.part[2]), code(weights.part[3]));
    if constexpr (!kSymmetric) {
      a = V::add16(a, V::set16(zero_));
      b = V::add16(b, V::set16(zero_));
    }
    return V::order_words(V::clamp8(V::pack16(a, b), low_, high_));
  }

 private:
  // The code in the lower word. Floats near 2^11 have steps of 2^-12, those
  // near 2^23 steps of 1.
  NIBBLE_INLINE typename V::Int code(typename V::Float weight) const {
    constexpr float kFine = 0x1.8p11F;
    constexpr float kWhole = 0x1.8p23F;
    const auto fine = V::fma(weight, reciprocal_, V::set(kFine));
    return V::bits(V::add(fine, V::set(kWhole - kFine)));
  }

  typename V::Float reciprocal_;
  int zero_;
  int low_;
  int high_;
};

template <typename V, typename Type, bool kReference>
struct Fill {
  static void run(const CodeRuns& job) {
    if (job.zeros == nullptr) {
      fill_runs<V, Type, Coder<V, Type, kReference, true>>(job);
    } else {
      fill_runs<V, Type, Coder<V, Type, kReference, false>>(job);
    }
  }
};

template <typename V>
struct Fill<V, TypeBF16<V, ShortDivision<V>>, false> {
  static void run(const CodeRuns& job) {
    using Type = WideBF16<V>;
    if (job.zeros == nullptr) {
      fill_runs<V, Type, ShortCoder<V, true>>(job);
    } else {
      fill_runs<V, Type, ShortCoder<V, false>>(job);
    }
  }
};

// The difference of two bytes is exact.
template <typename V>
struct Value {
  static NIBBLE_INLINE typename V::Float of(typename V::Int codes,
                                            typename V::Float zero,
                                            typename V::Float scale) {
    return V::mul(V::sub(V::to_float(codes), zero), scale);
  }
};

}  // namespace
}  // namespace nibble::quant::integer
