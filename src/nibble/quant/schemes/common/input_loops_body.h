#pragma once

// The loops of input_loops.h, included by one file for each set of
// instructions. Everything is local to the including file and nothing from the
// standard library is called, so that no function compiled for AVX-512 can be
// linked into another place. Written without branches: compilers make vectors
// of them.

#include <cstdint>

#include "nibble/quant/schemes/common/input_loops.h"

namespace nibble::quant {
namespace {

float absolute_maximum(const float* values, std::int64_t count) {
  // Bit patterns of positive floats are ordered as the floats, with NaN above
  // infinity; the integer maximum is one that compilers vectorize.
  std::int32_t most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t bits =
        __builtin_bit_cast(std::int32_t, values[i]) & 0x7FFFFFFF;
    most = bits > most ? bits : most;
  }
  return __builtin_bit_cast(float, most);
}

// value, or the nearer of the limits; NaN stays.
inline float clamped(float value, float low, float high) {
  value = value < low ? low : value;
  return value > high ? high : value;
}

inline float to_e4m3(float value) {
  value = clamped(value, -448.0F, 448.0F);
  // Normal numbers keep 3 bits of the mantissa.
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const float normal = __builtin_bit_cast(
      float, (bits + 0x7FFFFu + ((bits >> 20) & 1u)) & ~0xFFFFFu);
  // Below 2^-6 the step is 2^-9: adding 1.5 * 2^23 * 2^-9 leaves no room for
  // more bits than that.
  constexpr float kMagic = 24576.0F;
  const float subnormal = (value + kMagic) - kMagic;
  return (bits & 0x7FFFFFFFu) < 0x3C800000u ? subnormal : normal;
}

void round_fp8(const float* values,
               std::int64_t count,
               float scale,
               float* rounded) {
  for (std::int64_t i = 0; i < count; ++i) {
    rounded[i] = to_e4m3(values[i] / scale) * scale;
  }
}

// Adding 1.5 * 2^23 to a float of less than 2^22 leaves its nearest integer,
// ties to even, in the low bits.
inline std::int16_t nearest_integer(float value) {
  constexpr float kMagic = 12582912.0F;
  return static_cast<std::int16_t>(
      __builtin_bit_cast(std::int32_t, value + kMagic) -
      __builtin_bit_cast(std::int32_t, kMagic));
}

void codes16(const float* values,
             std::int64_t count,
             float factor,
             std::int16_t* codes) {
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = nearest_integer(values[i] * factor);
  }
}

void codes8(const float* values,
            std::int64_t count,
            float scale,
            std::int16_t* codes) {
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = nearest_integer(clamped(values[i] / scale, -128.0F, 127.0F));
  }
}

std::int32_t sum_of(const std::int16_t* codes, std::int64_t count) {
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += codes[i];
  }
  return sum;
}

constexpr InputLoops kLoops = {
    absolute_maximum, round_fp8, codes16, codes8, sum_of};

}  // namespace
}  // namespace nibble::quant
