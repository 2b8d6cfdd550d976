#include <immintrin.h>

#include "nibble/quant/core/kernels/range_loops.h"

namespace nibble::quant {
namespace {

struct Vector {
  using Words = __m512i;
  static constexpr std::size_t kWords = 32;

  static __m512i load(const std::uint16_t* from) {
    return _mm512_loadu_si512(from);
  }

  static __m512i set(int x) {
    return _mm512_set1_epi16(static_cast<std::int16_t>(x));
  }

  static __m512i bit_and(__m512i a, __m512i b) {
    return _mm512_and_si512(a, b);
  }

  static __m512i bit_xor(__m512i a, __m512i b) {
    return _mm512_xor_si512(a, b);
  }

  static __m512i max(__m512i a, __m512i b) { return _mm512_max_epu16(a, b); }

  static __m512i max_signed(__m512i a, __m512i b) {
    return _mm512_max_epi16(a, b);
  }

  // Unsigned maxima of the quarters.
  static __m128i fold_max(__m512i a) {
    const __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(a),
                                          _mm512_extracti64x4_epi64(a, 1));
    return _mm_max_epu16(_mm256_castsi256_si128(half),
                         _mm256_extracti128_si256(half, 1));
  }
};

}  // namespace

void bf16_ranges_avx512(const void* weight,
                        std::size_t runs,
                        std::size_t length,
                        float* low,
                        float* high) {
  ranges<Vector>(weight, runs, length, low, high);
}

void bf16_magnitudes_avx512(const void* weight,
                            std::size_t runs,
                            std::size_t length,
                            float* low,
                            float* high) {
  magnitudes<Vector>(weight, runs, length, low, high);
}

}  // namespace nibble::quant
