#include "nibble/quant/core/kernels/scale_rule.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "nibble/base/error.h"
#include "nibble/quant/core/kernels/code_runs.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

// What the arithmetic needs to know of a floating type.
struct FloatType {
  float greatest;  // largest finite value
  float least;     // smallest subnormal
  float epsilon;   // distance from 1 to the next value
};

FloatType float_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {std::numeric_limits<float>::max(), 0x1p-149F, 0x1p-23F};
    case DType::kBF16:
      return {0x1.FEp127F, 0x1p-133F, 0x1p-7F};
    case DType::kF16:
      return {65504.0F, 0x1p-24F, 0x1p-10F};
    default:
      fail(ErrorCode::kUnsupported,
           "scale: found {}, expected F32, F16 or BF16",
           dtype_name(dtype));
  }
}

// The neighbour of value >= 0 (a value of dtype): up for +1, down for -1.
float neighbour(DType dtype, float value, int direction) {
  switch (dtype) {
    case DType::kBF16:
      return bf16_to_float(
          static_cast<std::uint16_t>(float_to_bf16(value) + direction));
    case DType::kF16:
      return f16_to_float(
          static_cast<std::uint16_t>(float_to_f16(value) + direction));
    default:
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) +
                                  static_cast<std::uint32_t>(direction));
  }
}

// Keeps scale finite and every code within `reach` of the zero point decodable
// to a finite weight. Only ranges near the end of the type are touched.
float limit_scale(const ScaleRule& rule, float scale, float reach) {
  const double greatest = float_type(rule.weight_dtype).greatest;
  scale = std::min(scale, float_type(rule.scale_dtype).greatest);
  if (static_cast<double>(scale) * reach <= greatest) {
    return scale;
  }
  const double limit = greatest / reach;
  scale = round_to(rule.scale_dtype, static_cast<float>(limit));
  return scale <= limit ? scale : neighbour(rule.scale_dtype, scale, -1);
}

// Rounds a scale that shall span `range` with `steps` codes. Where the type
// has fewer than 8 significant bits left, rounding down would clip more than a
// code's width, so it rounds up.
float round_exact_scale(const ScaleRule& rule,
                        float quotient,
                        double range,
                        double steps) {
  const FloatType type = float_type(rule.scale_dtype);
  const float scale =
      std::min(round_to(rule.scale_dtype, quotient), type.greatest);
  if (scale < 128 * type.least && scale * steps < range) {
    return neighbour(rule.scale_dtype, scale, +1);
  }
  return scale;
}

std::int8_t rounded_zero(const ScaleRule& rule, float zero) {
  return static_cast<std::int8_t>(
      std::nearbyint(std::clamp(zero, rule.low, rule.high)));
}

float reach_of(const ScaleRule& rule, std::int8_t zero) {
  const auto z = static_cast<float>(zero);
  return std::max(rule.high - z, z - rule.low);
}

// llama-models: float32 throughout, a divisor of 2^(bits-1) that clips the
// greatest positive weight, and floors instead of an epsilon.
ScaleAndZero meta_symmetric(const ScaleRule& rule, float greatest) {
  constexpr float kLeastMagnitude = 1e-6F;
  constexpr float kLeastFp8Scale = 1.0F / (kF8E4M3Max * 512.0F);
  if (rule.high == kF8E4M3Max) {
    return {std::max(greatest / rule.high, kLeastFp8Scale), 0};
  }
  return {std::max(greatest, kLeastMagnitude) / -rule.low, 0};
}

ScaleAndZero symmetric(const ScaleRule& rule, float low, float high) {
  const float half = (rule.high - rule.low) / 2;
  const float greatest = std::max(-low, high);
  if (rule.numerics == Numerics::kMeta) {
    return meta_symmetric(rule, greatest);
  }
  float scale = 0;
  if (rule.numerics == Numerics::kReference) {
    scale = round_to(rule.scale_dtype,
                     round_to(rule.weight_dtype, greatest / half));
  } else if (greatest > 0) {
    scale = round_exact_scale(rule, greatest / half, greatest, half);
  }
  if (scale == 0) {
    return {float_type(rule.scale_dtype).epsilon, 0};
  }
  return {limit_scale(rule, scale, -rule.low), 0};
}

ScaleAndZero exact_asymmetric(const ScaleRule& rule, float low, float high) {
  const float steps = rule.high - rule.low;
  const double range = static_cast<double>(high) - low;
  if (range == 0) {
    return {float_type(rule.scale_dtype).epsilon, 0};
  }
  const float difference = high - low;
  const float quotient = std::isfinite(difference) ? difference / steps
                                                   : high / steps - low / steps;
  const float scale = round_exact_scale(rule, quotient, range, steps);
  const std::int8_t zero = rounded_zero(rule, rule.low - low / scale);
  return {limit_scale(rule, scale, reach_of(rule, zero)), zero};
}

// Every operation rounded to the weight's type, and the zero point taken
// before an exact zero scale is replaced: what the reference tool does. Its
// 0/0 of an all-zero group becomes zero point 0; where its range overflows and
// nothing of use would come out, the exact rule stands in.
ScaleAndZero reference_asymmetric(const ScaleRule& rule,
                                  float low,
                                  float high) {
  const auto rounded = [&](float x) { return round_to(rule.weight_dtype, x); };
  const float difference = rounded(high - low);
  if (!std::isfinite(difference)) {
    return exact_asymmetric(rule, low, high);
  }
  float scale = rounded(difference / (rule.high - rule.low));
  const float offset = rounded(rule.low - rounded(low / scale));
  const std::int8_t zero = std::isnan(offset) ? 0 : rounded_zero(rule, offset);
  scale = round_to(rule.scale_dtype, scale);
  if (scale == 0) {
    return {float_type(rule.scale_dtype).epsilon, zero};
  }
  return {limit_scale(rule, scale, reach_of(rule, zero)), zero};
}

struct RoundToBF16 {
  float operator()(float x) const {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return std::bit_cast<float>((bits + 0x7FFFu + ((bits >> 16) & 1u)) &
                                0xFFFF0000u);
  }
};

struct KeepF32 {
  float operator()(float x) const { return x; }
};

bool all_fast(const float* scales, std::size_t count) {
  int good = 1;  // no early end, so that the loop uses vectors
  for (std::size_t i = 0; i < count; ++i) {
    good &= static_cast<int>(scales[i] >= kLeastFastScale) &
            static_cast<int>(scales[i] <= kGreatestFastScale);
  }
  return good != 0;
}

// The branch-free middle of choose_scale, which vectorizes: true when all
// ranges were in its domain. Both arithmetics agree there when symmetric.
template <typename Round>
bool fast_symmetric(const ScaleRule& rule,
                    const float* low,
                    const float* high,
                    std::size_t count,
                    float* scales) {
  const float half = (rule.high - rule.low) / 2;
  for (std::size_t i = 0; i < count; ++i) {
    const float negative = -low[i];
    const float greatest = negative > high[i] ? negative : high[i];
    scales[i] = Round()(greatest / half);
  }
  return all_fast(scales, count);
}

template <typename Round>
bool fast_exact_asymmetric(const ScaleRule& rule,
                           const float* low,
                           const float* high,
                           std::size_t count,
                           float* scales,
                           std::int8_t* zeros) {
  // Adding and taking away 1.5 * 2^23 rounds to an integer, ties to even.
  constexpr float kMagic = 0x1.8p23F;
  const float steps = rule.high - rule.low;
  for (std::size_t i = 0; i < count; ++i) {
    const float least = low[i] < 0 ? low[i] : 0;
    const float greatest = high[i] > 0 ? high[i] : 0;
    const float scale = Round()((greatest - least) / steps);
    float zero = rule.low - least / scale;
    zero = zero < rule.low ? rule.low : zero;
    zero = zero > rule.high ? rule.high : zero;
    scales[i] = scale;
    zeros[i] = static_cast<std::int8_t>(
        std::bit_cast<std::int32_t>(zero + kMagic) & 0xFF);
  }
  return all_fast(scales, count);
}

template <typename Round>
bool fast_scales(const ScaleRule& rule,
                 const float* low,
                 const float* high,
                 std::size_t count,
                 float* scales,
                 std::int8_t* zeros) {
  if (rule.symmetric) {
    return fast_symmetric<Round>(rule, low, high, count, scales);
  }
  return rule.numerics == Numerics::kExact &&
         fast_exact_asymmetric<Round>(rule, low, high, count, scales, zeros);
}

}  // namespace

ScaleRule scale_rule(const NumberSpec& spec,
                     Numerics numerics,
                     DType weight_dtype) {
  const int half = 1 << (spec.bits - 1);
  ScaleRule rule;
  rule.low = spec.floating ? -kF8E4M3Max : static_cast<float>(-half);
  rule.high = spec.floating ? kF8E4M3Max : static_cast<float>(half - 1);
  rule.symmetric = spec.symmetric;
  rule.numerics = numerics;
  rule.weight_dtype = weight_dtype;
  rule.scale_dtype = spec.scale_dtype;
  return rule;
}

ScaleAndZero choose_scale(const ScaleRule& rule, float low, float high) {
  NIBBLE_CHECK(std::isfinite(low) && std::isfinite(high),
               kInternal,
               "scale: found weights from {} to {}, expected finite ones",
               low,
               high);
  low = std::min(low, 0.0F);
  high = std::max(high, 0.0F);
  if (rule.symmetric) {
    return symmetric(rule, low, high);
  }
  return rule.numerics == Numerics::kReference
             ? reference_asymmetric(rule, low, high)
             : exact_asymmetric(rule, low, high);
}

bool choose_scales(const ScaleRule& rule,
                   const float* low,
                   const float* high,
                   std::size_t count,
                   float* scales,
                   std::int8_t* zeros) {
  const DType dtype = rule.scale_dtype;
  // The ends of F16 are within the fast domain, so F16 weights take the
  // careful way.
  if (rule.weight_dtype != DType::kF16 && rule.numerics != Numerics::kMeta &&
      (dtype == rule.weight_dtype || rule.numerics == Numerics::kExact)) {
    if (dtype == DType::kBF16 &&
        fast_scales<RoundToBF16>(rule, low, high, count, scales, zeros)) {
      return true;
    }
    if (dtype == DType::kF32 &&
        fast_scales<KeepF32>(rule, low, high, count, scales, zeros)) {
      return true;
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const ScaleAndZero chosen = choose_scale(rule, low[i], high[i]);
    scales[i] = chosen.scale;
    if (zeros != nullptr) {
      zeros[i] = chosen.zero;
    }
  }
  return all_fast(scales, count);
}

}  // namespace nibble::quant
