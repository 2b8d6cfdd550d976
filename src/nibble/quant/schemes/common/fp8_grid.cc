#include "nibble/quant/schemes/common/fp8_grid.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "nibble/base/error.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

// A dynamic scale of an all-zero run: any positive number does.
float dynamic_scale(std::span<const float> values) {
  const float scale = absolute_maximum(values) / kF8E4M3Max;
  return scale == 0 ? std::numeric_limits<float>::epsilon() : scale;
}

// Branch-free, so that the compiler makes vectors of it.
float to_e4m3(float value) {
  value = std::min(std::max(value, -kF8E4M3Max), kF8E4M3Max);
  // Normal numbers keep 3 bits of the mantissa.
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const float normal =
      std::bit_cast<float>((bits + 0x7FFFFu + ((bits >> 20) & 1u)) & ~0xFFFFFu);
  // Below 2^-6 the step is 2^-9: adding 1.5 * 2^23 * 2^-9 leaves no room for
  // more bits than that.
  constexpr float kMagic = 24576.0F;
  const float subnormal = (value + kMagic) - kMagic;
  return std::fabs(value) < 0x1p-6F ? subnormal : normal;
}

}  // namespace

float absolute_maximum(std::span<const float> values) {
  // Bit patterns of positive floats are ordered as the floats, with NaN above
  // infinity; the integer maximum is one that compilers vectorize.
  std::int32_t most = 0;
  for (const float value : values) {
    most = std::max(most, std::bit_cast<std::int32_t>(value) & 0x7FFFFFFF);
  }
  return std::bit_cast<float>(most);
}

void round_to_fp8_grid(std::span<const float> values,
                       float scale,
                       std::span<float> rounded) {
  NIBBLE_ASSERT(values.size() == rounded.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    rounded[i] = to_e4m3(values[i] / scale) * scale;
  }
}

void round_token_to_fp8(std::span<const float> token,
                        const NumberSpec& input,
                        std::optional<float> static_scale,
                        std::span<float> rounded) {
  if (static_scale) {
    round_to_fp8_grid(token, *static_scale, rounded);
    return;
  }
  const std::size_t run = input.grain == Grain::kGroup
                              ? static_cast<std::size_t>(input.group)
                              : token.size();
  for (std::size_t begin = 0; begin < token.size(); begin += run) {
    const std::size_t count = std::min(run, token.size() - begin);
    const auto part = token.subspan(begin, count);
    round_to_fp8_grid(part, dynamic_scale(part), rounded.subspan(begin, count));
  }
}

}  // namespace nibble::quant
