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
    return V::pack16_unsigned(
        V::pack32(code(weights.part[0]), code(weights.part[1])),
        V::pack32(code(weights.part[2]), code(weights.part[3])));
  }

 private:
  // E4M3 bits: sign 7, exponent 6..3 (bias 7), mantissa 2..0. A float32 has
  // exponent bias 127 and 20 more bits of mantissa.
  NIBBLE_INLINE typename V::Int code(typename V::Float weight) const {
    auto x = divide_(weight);
    if constexpr (kReference) {
      x = Type::round(x);
    }
    const auto magnitude = V::min(
        V::floats(V::bit_and(V::bits(x), V::set(0x7FFFFFFF))), V::set(448.0F));
    // Normal: add half a unit less one, plus one when the last bit is odd.
    const auto bits = V::bits(magnitude);
    const auto odd = V::bit_and(V::template shift_right<20>(bits), V::set(1));
    const auto normal = V::template shift_right<20>(
        V::add(V::add(bits, odd), V::set(0x7FFFF - (120 << 23))));
    // Below 2^-6: a float32 near 2^14 has the subnormals' step of 2^-9.
    const auto subnormal = V::sub(V::bits(V::add(magnitude, V::set(0x1p14F))),
                                  V::bits(V::set(0x1p14F)));
    const auto code =
        V::select_less(magnitude, V::set(0x1p-6F), subnormal, normal);
    // The sign is the weight's: the correction step loses that of a zero.
    return V::bit_or(
        code,
        V::bit_and(V::template shift_right<24>(V::bits(weight)), V::set(0x80)));
  }

  typename Type::Divide divide_;
};

template <typename V, typename Type, bool kReference>
struct Fill {
  static void run(const CodeRuns& job) {
    fill_runs<V, Type, Coder<V, Type, kReference>>(job);
  }
};

}  // namespace
}  // namespace nibble::quant::fp8
