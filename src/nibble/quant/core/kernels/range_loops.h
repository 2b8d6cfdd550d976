#pragma once

#include "nibble/quant/core/kernels/ranges_x86.h"

// Only for sources built for one instruction set, after the header of its
// vectors V: the loops of the range kernels, on words of 16 bits.
namespace nibble::quant {
namespace {

inline float bf16_value(unsigned bits) {
  const std::uint32_t wide = bits << 16;
  float value = 0;
  __builtin_memcpy(&value, &wide, sizeof value);
  return value;
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

// Words of a vector.
template <typename V>
inline constexpr std::size_t kWords = V::kBlock / 2;

// Folds all whole vectors of a run into accumulators, four at a time so that
// the loop costs little; returns the first element left.
template <typename V, typename Fold>
std::size_t fold_run(const std::uint16_t* run,
                     std::size_t length,
                     const Fold& fold) {
  std::size_t i = 0;
  for (; i + 4 * kWords<V> <= length; i += 4 * kWords<V>) {
    fold(V::load_words(run + i), 0);
    fold(V::load_words(run + i + kWords<V>), 1);
    fold(V::load_words(run + i + 2 * kWords<V>), 0);
    fold(V::load_words(run + i + 3 * kWords<V>), 1);
  }
  for (; i + kWords<V> <= length; i += kWords<V>) {
    fold(V::load_words(run + i), 0);
  }
  return i;
}

template <typename V>
void magnitudes(const void* weight,
                std::size_t runs,
                std::size_t length,
                float* low,
                float* high) {
  const auto* run = static_cast<const std::uint16_t*>(weight);
  const auto mask = V::set16(0x7FFF);
  for (std::size_t r = 0; r < runs; ++r, run += length) {
    typename V::Int greatest[2] = {V::set16(0), V::set16(0)};
    std::size_t i =
        fold_run<V>(run, length, [&](typename V::Int words, int half) {
          greatest[half] =
              V::max16_unsigned(greatest[half], V::bit_and(words, mask));
        });
    unsigned result =
        V::greatest16_unsigned(V::max16_unsigned(greatest[0], greatest[1]));
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
template <typename V>
void ranges(const void* weight,
            std::size_t runs,
            std::size_t length,
            float* low,
            float* high) {
  const auto* run = static_cast<const std::uint16_t*>(weight);
  const auto sign = V::set16(0x8000);
  for (std::size_t r = 0; r < runs; ++r, run += length) {
    // All of the run's own words, so that nothing foreign is an extreme.
    const auto first = V::set16(run[0]);
    typename V::Int most[2] = {first, first};
    typename V::Int most_signed[2] = {first, first};
    std::size_t i =
        fold_run<V>(run, length, [&](typename V::Int words, int half) {
          most[half] = V::max16_unsigned(most[half], words);
          most_signed[half] = V::max16(most_signed[half], words);
        });
    unsigned a = V::greatest16_unsigned(V::max16_unsigned(most[0], most[1]));
    unsigned b = 0x8000U ^ V::greatest16_unsigned(V::bit_xor(
                               V::max16(most_signed[0], most_signed[1]), sign));
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
