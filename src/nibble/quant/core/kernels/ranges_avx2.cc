#include <immintrin.h>

#include "nibble/quant/core/kernels/range_loops.h"

namespace nibble::quant {
namespace {

struct Vector {
  using Words = __m256i;
  static constexpr std::size_t kWords = 16;

  static __m256i load(const std::uint16_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }

  static __m256i set(int x) {
    return _mm256_set1_epi16(static_cast<std::int16_t>(x));
  }

  static __m256i bit_and(__m256i a, __m256i b) {
    return _mm256_and_si256(a, b);
  }

  static __m256i bit_xor(__m256i a, __m256i b) {
    return _mm256_xor_si256(a, b);
  }

  static __m256i max(__m256i a, __m256i b) { return _mm256_max_epu16(a, b); }

  static __m256i max_signed(__m256i a, __m256i b) {
    return _mm256_max_epi16(a, b);
  }

  // Unsigned maxima of the halves.
  static __m128i fold_max(__m256i a) {
    return _mm_max_epu16(_mm256_castsi256_si128(a),
                         _mm256_extracti128_si256(a, 1));
  }
};

}  // namespace

void bf16_ranges_avx2(const void* weight,
                      std::size_t runs,
                      std::size_t length,
                      float* low,
                      float* high) {
  ranges<Vector>(weight, runs, length, low, high);
}

void bf16_magnitudes_avx2(const void* weight,
                          std::size_t runs,
                          std::size_t length,
                          float* low,
                          float* high) {
  magnitudes<Vector>(weight, runs, length, low, high);
}

}  // namespace nibble::quant
