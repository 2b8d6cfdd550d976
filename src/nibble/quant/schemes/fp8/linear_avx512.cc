// Compiled for AVX-512 F, BW, DQ and VL; see linear_kernels.h.
#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include "nibble/quant/schemes/fp8/linear_kernels.h"

namespace nibble::quant {
namespace {

// Scales of 16 rows, times the 256 that halves of codes lack.
inline __m512 load_scales(const Fp8Weights& weights,
                          std::int64_t tile,
                          std::int64_t block) {
  const std::int64_t first = (tile * weights.blocks + block) * kTileRows;
  const __m512 missing = _mm512_set1_ps(256.0F);
  if (weights.scale_kind == ScaleKind::kF32) {
    return _mm512_mul_ps(
        missing,
        _mm512_loadu_ps(static_cast<const float*>(weights.scales) + first));
  }
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(
      static_cast<const std::uint16_t*>(weights.scales) + first));
  if (weights.scale_kind == ScaleKind::kF16) {
    return _mm512_mul_ps(missing, _mm512_cvtph_ps(half));
  }
  return _mm512_mul_ps(
      missing,
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16)));
}

// Two columns of 16 codes as halves: the sign is doubled by an arithmetic
// shift and its copy in the exponent cleared.
inline __m512i load_halves(const std::uint8_t* codes) {
  const __m512i words = _mm512_slli_epi16(
      _mm512_cvtepu8_epi16(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes))),
      8);
  return _mm512_and_si512(_mm512_srai_epi16(words, 1),
                          _mm512_set1_epi16(static_cast<short>(0xBFFF)));
}

inline __m512 first_column(__m512i halves) {
  return _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
}

inline __m512 second_column(__m512i halves) {
  return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
}

// One column alone, where their number is odd.
inline __m512 load_column(const std::uint8_t* codes) {
  const __m256i words = _mm256_slli_epi16(
      _mm256_cvtepu8_epi16(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes))),
      8);
  return _mm512_cvtph_ps(
      _mm256_and_si256(_mm256_srai_epi16(words, 1),
                       _mm256_set1_epi16(static_cast<short>(0xBFFF))));
}

inline std::int64_t block_end(const Fp8Weights& weights, std::int64_t block) {
  const std::int64_t end = (block + 1) * weights.block;
  return end < weights.columns ? end : weights.columns;
}

template <int kTokens>
void few(const Fp8Weights& weights,
         std::int64_t tile,
         const Fp8Inputs& inputs,
         float* out) {
  // Enough independent sums to hide the latency of the multiplication.
  constexpr int kChains = kTokens == 1 ? 8 : 4;
  const std::uint8_t* codes =
      weights.codes + tile * weights.columns * kTileRows;
  const float* values = inputs.values;
  __m512 total[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    total[t] = _mm512_setzero_ps();
  }
  std::int64_t column = 0;
  for (std::int64_t block = 0; block < weights.blocks; ++block) {
    const std::int64_t end = block_end(weights, block);
    __m512 acc[kTokens][kChains];
    for (int t = 0; t < kTokens; ++t) {
      for (int c = 0; c < kChains; ++c) {
        acc[t][c] = _mm512_setzero_ps();
      }
    }
    for (; column + kChains <= end; column += kChains) {
      _mm_prefetch(reinterpret_cast<const char*>(codes) + 2048, _MM_HINT_T0);
#pragma GCC unroll 4
      for (int pair = 0; pair < kChains / 2; ++pair) {
        const __m512i halves = load_halves(codes + pair * 32);
        const __m512 first = first_column(halves);
        const __m512 second = second_column(halves);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          const float* at = values + 2 * pair * kTokens + t;
          acc[t][2 * pair] =
              _mm512_fmadd_ps(first, _mm512_set1_ps(at[0]), acc[t][2 * pair]);
          acc[t][2 * pair + 1] = _mm512_fmadd_ps(
              second, _mm512_set1_ps(at[kTokens]), acc[t][2 * pair + 1]);
        }
      }
      codes += kChains * kTileRows;
      values += kChains * kTokens;
    }
    for (; column < end; ++column) {
      const __m512 weight = load_column(codes);
      for (int t = 0; t < kTokens; ++t) {
        acc[t][0] =
            _mm512_fmadd_ps(weight, _mm512_set1_ps(values[t]), acc[t][0]);
      }
      codes += kTileRows;
      values += kTokens;
    }
    const __m512 scales = load_scales(weights, tile, block);
    for (int t = 0; t < kTokens; ++t) {
      for (int width = kChains / 2; width > 0; width /= 2) {
        for (int c = 0; c < width; ++c) {
          acc[t][c] = _mm512_add_ps(acc[t][c], acc[t][c + width]);
        }
      }
      total[t] = _mm512_fmadd_ps(acc[t][0], scales, total[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    _mm512_storeu_ps(out + t * kTileRows, total[t]);
  }
}

void few_any(const Fp8Weights& weights,
             std::int64_t tile,
             const Fp8Inputs& inputs,
             float* out) {
  switch (inputs.tokens) {
    case 1:
      return few<1>(weights, tile, inputs, out);
    case 2:
      return few<2>(weights, tile, inputs, out);
    case 3:
      return few<3>(weights, tile, inputs, out);
    default:
      return few<4>(weights, tile, inputs, out);
  }
}

void unpack(const Fp8Weights& weights,
            std::int64_t tile,
            ColumnRange range,
            float* panel) {
  const std::uint8_t* codes =
      weights.codes + (tile * weights.columns + range.first) * kTileRows;
  std::int64_t column = range.first;
  const std::int64_t last = range.first + range.count;
  while (column < last) {
    const std::int64_t block = column / weights.block;
    const std::int64_t block_last = block_end(weights, block);
    const std::int64_t end = block_last < last ? block_last : last;
    const __m512 scales = load_scales(weights, tile, block);
    for (; column < end; ++column) {
      _mm512_storeu_ps(panel, _mm512_mul_ps(load_column(codes), scales));
      codes += kTileRows;
      panel += kTileRows;
    }
  }
}

// kTokens x 16 kTiles results in registers: at most 12 x 32.
template <int kTokens, int kTiles>
void multiply(ColumnRange range,
              const float* panel,
              std::int64_t panel_stride,
              const Fp8Inputs& inputs,
              float* out) {
  const float* values = inputs.values + range.first * kTokens;
  __m512 acc[kTokens][kTiles];
#pragma GCC unroll 12
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
    for (int r = 0; r < kTiles; ++r) {
      acc[t][r] = _mm512_loadu_ps(out + (t * kTiles + r) * kTileRows);
    }
  }
  for (std::int64_t i = 0; i < range.count; ++i) {
    __m512 weight[kTiles];
#pragma GCC unroll 2
    for (int r = 0; r < kTiles; ++r) {
      weight[r] = _mm512_loadu_ps(panel + r * panel_stride);
    }
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
      const __m512 value = _mm512_set1_ps(values[t]);
#pragma GCC unroll 2
      for (int r = 0; r < kTiles; ++r) {
        acc[t][r] = _mm512_fmadd_ps(weight[r], value, acc[t][r]);
      }
    }
    panel += kTileRows;
    values += kTokens;
  }
#pragma GCC unroll 12
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
    for (int r = 0; r < kTiles; ++r) {
      _mm512_storeu_ps(out + (t * kTiles + r) * kTileRows, acc[t][r]);
    }
  }
}

template <int kTokens>
void multiply_tokens(int tiles,
                     ColumnRange range,
                     const float* panel,
                     std::int64_t panel_stride,
                     const Fp8Inputs& inputs,
                     float* out) {
  if constexpr (kTokens > 1) {
    if (inputs.tokens < kTokens) {
      return multiply_tokens<kTokens - 1>(
          tiles, range, panel, panel_stride, inputs, out);
    }
  }
  if (tiles == 2) {
    multiply<kTokens, 2>(range, panel, panel_stride, inputs, out);
  } else {
    multiply<kTokens, 1>(range, panel, panel_stride, inputs, out);
  }
}

}  // namespace

const Fp8Kernels kFp8Avx512 = {
    .few_tokens = 4,
    .panel_tokens = 12,
    .few = few_any,
    .unpack = unpack,
    .panel = multiply_tokens<12>,
};

}  // namespace nibble::quant
