#pragma once

#include "nibble/quant/core/code_loops.h"
#include "nibble/quant/schemes/fp8/codes_x86.h"

// Only for sources built for one instruction set.
namespace nibble::quant::fp8 {
namespace {

// Codes of blocks of one run; the vector form of fill() in codes.cc.
template <typename V, typename Type, bool kReference>
class Coder {
 public:
  Coder(const CodeRuns& job, std::size_t run) : divide_(job.scales[run]) {}

  NIBBLE_INLINE typename V::Int block(const typename V::Block& weights) const {
    const auto& part = weights.part;
    const auto offset = V::set16(-kOffset);
    const auto a = V::pack32(magnitude(part[0]), magnitude(part[1]));
    const auto b = V::pack32(magnitude(part[2]), magnitude(part[3]));
    const auto magnitudes = V::min8_unsigned(
        V::pack16_unsigned(V::add16(a, offset), V::add16(b, offset)), 0x7E);
    // Saturating packs keep the sign bit. It is the weight's: the quotient's
    // correction step loses that of a zero.
    const auto signs = V::pack16(V::pack32(V::bits(part[0]), V::bits(part[1])),
                                 V::pack32(V::bits(part[2]), V::bits(part[3])));
    return V::bit_or(magnitudes,
                     V::bit_and(signs, V::set(static_cast<int>(0x80808080U))));
  }

 private:
  // E4M3 bits: sign 7, exponent 6..3 (bias 7), mantissa 2..0; exponent 0 is
  // subnormal with the step of exponent 1, 2^-9.
  //
  // Let p be the quotient's power of two, at least 2^-6. A float32 near
  // p * 2^20 has the code's step, p / 8: adding that number rounds to n eighths
  // of p, ties to even, and leaves n (0 to 16) in the low bits. The code is n
  // plus 8 for each power of two above 2^-6, carries included.
  static constexpr int kPower = 20;
  // Eight times the exponent field of 2^-6 * 2^20.
  static constexpr int kOffset = 8 * (127 - 6 + kPower);

  // kOffset + the code without its sign; beyond 448 a number above that of
  // 0x7E.
  NIBBLE_INLINE typename V::Int magnitude(typename V::Float weight) const {
    auto x = divide_(weight);
    if constexpr (kReference) {
      x = Type::round(x);
    }
    const auto bits = V::bit_and(V::bits(x), V::set(0x7FFFFFFF));
    const auto power =
        V::max(V::bit_and(bits, V::set(0x7F800000)), V::set((127 - 6) << 23));
    const auto magic = V::add(power, V::set(kPower << 23));
    const auto sum = V::bits(V::add(V::floats(bits), V::floats(magic)));
    return V::add(V::sub(sum, magic), V::template shift_right<20>(magic));
  }

  typename Type::Divide divide_;
};

template <typename V, typename Type, bool kReference>
struct Fill {
  static void run(const CodeRuns& job) {
    fill_runs<V, Type, Coder<V, Type, kReference>>(job);
  }
};

// Exponent and mantissa moved into their place in a float32, subnormals
// included, give the value less 2^120; 0x7F is NaN.
template <typename V>
struct Value {
  static NIBBLE_INLINE typename V::Float of(typename V::Int codes,
                                            typename V::Float /*zero*/,
                                            typename V::Float scale) {
    const auto magnitude = V::bit_and(codes, V::set(0x7F));
    const auto sign = V::bit_and(codes, V::set(static_cast<int>(0x80000000U)));
    const auto nan = V::equal(magnitude, V::set(0x7F));
    const auto moved = V::bit_or(sign, V::template shift_left<20>(magnitude));
    const auto value =
        V::mul(V::mul(V::floats(moved), V::set(0x1p120F)), scale);
    return V::floats(V::bit_or(V::bits(value), nan));
  }
};

}  // namespace
}  // namespace nibble::quant::fp8
