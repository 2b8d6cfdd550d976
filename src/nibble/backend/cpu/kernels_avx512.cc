#include <cstdint>
#include <immintrin.h>

#include "nibble/backend/cpu/kernels.h"

namespace nibble::backend::cpu {
namespace {

// 512-bit vectors: AVX-512 F, DQ, BW, VL.
struct V {
  using F = __m512;
  static constexpr int kLanes = 16;
  // 24 accumulators, 6 activations and a weight fill 31 of 32 registers.
  static constexpr int kTokens = 6;

  static F set(float value) { return _mm512_set1_ps(value); }

  static F load(const float* from) { return _mm512_loadu_ps(from); }

  static F load(const Bf16* from) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))),
        16));
  }

  static F load(const F16* from) {
    return _mm512_cvtph_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }

  static void store(float* to, F value) { _mm512_storeu_ps(to, value); }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }

  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }

  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }

  static F div(F a, F b) { return _mm512_div_ps(a, b); }

  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }

  // Both give b when either is NaN.
  static F max(F a, F b) { return _mm512_max_ps(a, b); }

  static F min(F a, F b) { return _mm512_min_ps(a, b); }

  static F zero_where_less(F x, F limit, F value) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ),
                               value);
  }

  // value * 2^n, n in the low bits of exponent.
  static F scale_exponent(F value, F exponent) {
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(value),
                         _mm512_slli_epi32(_mm512_castps_si512(exponent), 23)));
  }

  // The sums of four vectors' lanes: two rounds of pairwise interleaving
  // leave a, b, c, d side by side in each 128-bit quarter.
  static void sum4(F a, F b, F c, F d, float* to) {
    const F ab =
        _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const F cd =
        _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const F abcd =
        _mm512_add_ps(_mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0)),
                      _mm512_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2)));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd),
                                      _mm512_extractf32x8_ps(abcd, 1));
    _mm_storeu_ps(to,
                  _mm_add_ps(_mm256_castps256_ps128(half),
                             _mm256_extractf128_ps(half, 1)));
  }
};

}  // namespace
}  // namespace nibble::backend::cpu

#include "nibble/backend/cpu/kernel_body.h"

namespace nibble::backend::cpu {

const Kernels& kernels_avx512() {
  return kKernels;
}

}  // namespace nibble::backend::cpu
