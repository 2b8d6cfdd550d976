#include <cstdint>
#include <immintrin.h>

#include "nibble/backend/cpu/kernels.h"

namespace nibble::backend::cpu {
namespace {

// 256-bit vectors: AVX2, FMA, F16C.
struct V {
  using F = __m256;
  static constexpr int kLanes = 8;
  // 12 accumulators, 3 activations and a weight fill the 16 registers.
  static constexpr int kTokens = 3;

  static F set(float value) { return _mm256_set1_ps(value); }

  static F load(const float* from) { return _mm256_loadu_ps(from); }

  static F load(const Bf16* from) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))),
        16));
  }

  static F load(const F16* from) {
    return _mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }

  static void store(float* to, F value) { _mm256_storeu_ps(to, value); }

  static F add(F a, F b) { return _mm256_add_ps(a, b); }

  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }

  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }

  static F div(F a, F b) { return _mm256_div_ps(a, b); }

  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }

  // Both give b when either is NaN.
  static F max(F a, F b) { return _mm256_max_ps(a, b); }

  static F min(F a, F b) { return _mm256_min_ps(a, b); }

  static F zero_where_less(F x, F limit, F value) {
    return _mm256_and_ps(_mm256_cmp_ps(x, limit, _CMP_NLT_UQ), value);
  }

  // value * 2^n, n in the low bits of exponent.
  static F scale_exponent(F value, F exponent) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(value),
                         _mm256_slli_epi32(_mm256_castps_si256(exponent), 23)));
  }

  // The sums of four vectors' lanes: two rounds of pairwise interleaving
  // leave a, b, c, d side by side in each 128-bit half.
  static void sum4(F a, F b, F c, F d, float* to) {
    const F ab =
        _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const F cd =
        _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const F abcd =
        _mm256_add_ps(_mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0)),
                      _mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2)));
    _mm_storeu_ps(to,
                  _mm_add_ps(_mm256_castps256_ps128(abcd),
                             _mm256_extractf128_ps(abcd, 1)));
  }
};

}  // namespace
}  // namespace nibble::backend::cpu

#include "nibble/backend/cpu/kernel_body.h"

namespace nibble::backend::cpu {

const Kernels& kernels_avx2() {
  return kKernels;
}

}  // namespace nibble::backend::cpu
