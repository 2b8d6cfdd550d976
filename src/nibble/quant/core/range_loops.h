#pragma once

#include "nibble/quant/core/ranges_x86.h"

// Only for sources built for one instruction set, after they define vectors of
// 16-bit words W: the loops of the range kernels.
namespace nibble::quant {
namespace {

inline float bf16_value(unsigned bits) {
  const std::uint32_t wide = bits << 16;
  float value = 0;
  __builtin_memcpy(&value, &wide, sizeof value);
  return value;
}

// Greatest of the 8 words, unsigned: the complement of the least complement.
inline unsigned greatest_word(__m128i words) {
  const __m128i flipped = _mm_xor_si128(words, _mm_set1_epi32(-1));
  return 0xFFFFU ^
         static_cast<unsigned>(_mm_extract_epi16(_mm_minpos_epu16(flipped), 0));
}

inline unsigned least_word(__m128i words) {
  return static_cast<unsigned>(_mm_extract_epi16(_mm_minpos_epu16(words), 0));
}

template <typename W>
void magnitudes(const void* weight,
                std::size_t runs,
                std::size_t length,
                float* low,
                float* high) {
  const auto* run = static_cast<const std::uint16_t*>(weight);
  const auto mask = W::set(0x7FFF);
  for (std::size_t r = 0; r < runs; ++r, run += length) {
    auto greatest = W::set(0);
    std::size_t i = 0;
    for (; i + W::kWords <= length; i += W::kWords) {
      greatest = W::max(greatest, W::bit_and(W::load(run + i), mask));
    }
    unsigned result = greatest_word(W::fold_max(greatest));
    for (; i < length; ++i) {
      const unsigned magnitude = run[i] & 0x7FFFU;
      result = magnitude > result ? magnitude : result;
    }
    high[r] = bf16_value(result);
    low[r] = -high[r];
  }
}

// Words in the order of the floats they stand for: the magnitude bits of
// negative ones flipped, then the sign, for unsigned comparison.
inline unsigned ordered_word(unsigned bits) {
  return bits ^ ((bits & 0x8000U) != 0 ? 0xFFFFU : 0x8000U);
}

inline unsigned plain_word(unsigned bits) {
  return bits ^ ((bits & 0x8000U) != 0 ? 0x8000U : 0xFFFFU);
}

template <typename W>
void ranges(const void* weight,
            std::size_t runs,
            std::size_t length,
            float* low,
            float* high) {
  const auto* run = static_cast<const std::uint16_t*>(weight);
  const auto magnitude = W::set(0x7FFF);
  const auto sign = W::set(0x8000);
  for (std::size_t r = 0; r < runs; ++r, run += length) {
    unsigned first = ordered_word(run[0]);
    auto least = W::set(static_cast<int>(first ^ 0x8000U));
    auto greatest = least;
    std::size_t i = 0;
    for (; i + W::kWords <= length; i += W::kWords) {
      const auto word = W::load(run + i);
      const auto value =
          W::bit_xor(word, W::bit_and(W::sign_words(word), magnitude));
      least = W::min_signed(least, value);
      greatest = W::max_signed(greatest, value);
    }
    unsigned a = least_word(W::fold_min(W::bit_xor(least, sign)));
    unsigned b = greatest_word(W::fold_max(W::bit_xor(greatest, sign)));
    for (; i < length; ++i) {
      const unsigned value = ordered_word(run[i]);
      a = value < a ? value : a;
      b = value > b ? value : b;
    }
    low[r] = bf16_value(plain_word(a));
    high[r] = bf16_value(plain_word(b));
  }
}

}  // namespace
}  // namespace nibble::quant
