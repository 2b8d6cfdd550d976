#pragma once

#include "nibble/quant/core/kernels/ranges_x86.h"

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

// Least and greatest of a run whose floats have the same sign.
inline void one_sign(const std::uint16_t* run,
                     std::size_t length,
                     unsigned& least,
                     unsigned& greatest) {
  unsigned low = run[0];
  unsigned high = run[0];
  for (std::size_t i = 1; i < length; ++i) {
    const unsigned word = run[i];
    low = word < low ? word : low;
    high = word > high ? word : high;
  }
  const bool negative = (run[0] & 0x8000U) != 0;
  least = negative ? high : low;
  greatest = negative ? low : high;
}

// Folds all whole vectors of a run into accumulators, four at a time so that
// the loop costs little; returns the first element left.
template <typename W, typename Fold>
std::size_t fold_run(const std::uint16_t* run,
                     std::size_t length,
                     const Fold& fold) {
  std::size_t i = 0;
  for (; i + 4 * W::kWords <= length; i += 4 * W::kWords) {
    fold(W::load(run + i), 0);
    fold(W::load(run + i + W::kWords), 1);
    fold(W::load(run + i + 2 * W::kWords), 0);
    fold(W::load(run + i + 3 * W::kWords), 1);
  }
  for (; i + W::kWords <= length; i += W::kWords) {
    fold(W::load(run + i), 0);
  }
  return i;
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
    typename W::Words greatest[2] = {W::set(0), W::set(0)};
    std::size_t i =
        fold_run<W>(run, length, [&](typename W::Words words, int half) {
          greatest[half] = W::max(greatest[half], W::bit_and(words, mask));
        });
    unsigned result =
        greatest_word(W::fold_max(W::max(greatest[0], greatest[1])));
    for (; i < length; ++i) {
      const unsigned magnitude = run[i] & 0x7FFFU;
      result = magnitude > result ? magnitude : result;
    }
    high[r] = bf16_value(result);
  }
  for (std::size_t r = 0; r < runs; ++r) {
    low[r] = -high[r];
  }
}

// Compared as unsigned words, negative floats are above all others, in the
// order of their magnitudes; compared as signed words, below.
template <typename W>
void ranges(const void* weight,
            std::size_t runs,
            std::size_t length,
            float* low,
            float* high) {
  const auto* run = static_cast<const std::uint16_t*>(weight);
  const auto sign = W::set(0x8000);
  for (std::size_t r = 0; r < runs; ++r, run += length) {
    // All of the run's own words, so that nothing foreign is an extreme.
    const auto first = W::set(run[0]);
    typename W::Words most[2] = {first, first};
    typename W::Words most_signed[2] = {first, first};
    std::size_t i =
        fold_run<W>(run, length, [&](typename W::Words words, int half) {
          most[half] = W::max(most[half], words);
          most_signed[half] = W::max_signed(most_signed[half], words);
        });
    unsigned a = greatest_word(W::fold_max(W::max(most[0], most[1])));
    unsigned b =
        0x8000U ^ greatest_word(W::fold_max(W::bit_xor(
                      W::max_signed(most_signed[0], most_signed[1]), sign)));
    for (; i < length; ++i) {
      const unsigned word = run[i];
      a = word > a ? word : a;
      b = (word ^ 0x8000U) > (b ^ 0x8000U) ? word : b;
    }
    if ((a & 0x8000U) == 0 || (b & 0x8000U) != 0) [[unlikely]] {
      one_sign(run, length, a, b);
    }
    low[r] = bf16_value(a);
    high[r] = bf16_value(b);
  }
}

}  // namespace
}  // namespace nibble::quant
