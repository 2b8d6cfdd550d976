// Compiled for AVX-512 F, BW, DQ and VL; see linear_kernels.h.
#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include "nibble/quant/schemes/fp8/linear_kernels.h"

namespace nibble::quant {
namespace {

// Scales of 16 rows, times the half of the bias that inputs do not carry.
inline __m512 load_scales(const Fp8Weights& weights,
                          std::int64_t tile,
                          std::int64_t block) {
  const std::int64_t first = (tile * weights.blocks + block) * kTileRows;
  const __m512 bias = _mm512_set1_ps(kFp8HalfBias);
  if (weights.scale_kind == ScaleKind::kF32) {
    return _mm512_mul_ps(
        bias,
        _mm512_loadu_ps(static_cast<const float*>(weights.scales) + first));
  }
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(
      static_cast<const std::uint16_t*>(weights.scales) + first));
  if (weights.scale_kind == ScaleKind::kF16) {
    return _mm512_mul_ps(bias, _mm512_cvtph_ps(half));
  }
  return _mm512_mul_ps(
      bias,
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16)));
}

struct Quad {
  __m512 column[4];
};

// The 4 columns of a run, times 2^-120. An arithmetic shift moves a code to
// its place in the upper half of a float and fills the exponent with copies of
// the sign, which the mask clears; done for two codes of a dword at a time.
inline Quad load_quad(const std::uint8_t* codes) {
  const __m512i run = _mm512_loadu_si512(codes);
  const __m512i mask = _mm512_set1_epi16(static_cast<short>(0x87F0));
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  const __m512i odd = _mm512_and_si512(_mm512_srai_epi16(run, 4), mask);
  const __m512i even =
      _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(run, 8), 4), mask);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(even, 16)),
          _mm512_castsi512_ps(_mm512_slli_epi32(odd, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(even, upper)),
          _mm512_castsi512_ps(_mm512_and_si512(odd, upper))};
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
    // A sum for each column of a run hides the latency of the multiplication.
    __m512 acc[kTokens][4];
    for (int t = 0; t < kTokens; ++t) {
      for (int c = 0; c < 4; ++c) {
        acc[t][c] = _mm512_setzero_ps();
      }
    }
    for (; column < end; column += 4) {
      _mm_prefetch(reinterpret_cast<const char*>(codes) + 2048, _MM_HINT_T0);
      const Quad quad = load_quad(codes);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          acc[t][c] = _mm512_fmadd_ps(quad.column[c],
                                      _mm512_set1_ps(values[c * kTokens + t]),
                                      acc[t][c]);
        }
      }
      codes += 4 * kTileRows;
      values += 4 * kTokens;
    }
    const __m512 scales = load_scales(weights, tile, block);
    for (int t = 0; t < kTokens; ++t) {
      const __m512 sum = _mm512_add_ps(_mm512_add_ps(acc[t][0], acc[t][1]),
                                       _mm512_add_ps(acc[t][2], acc[t][3]));
      total[t] = _mm512_fmadd_ps(sum, scales, total[t]);
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
  const __m512 bias = _mm512_set1_ps(kFp8HalfBias);
  std::int64_t column = range.first;
  const std::int64_t last = range.first + range.count;
  while (column < last) {
    const std::int64_t block = column / weights.block;
    const std::int64_t block_last = block_end(weights, block);
    const std::int64_t end = block_last < last ? block_last : last;
    const __m512 scales = load_scales(weights, tile, block);
    for (; column < end; column += 4) {
      const Quad quad = load_quad(codes);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        _mm512_storeu_ps(
            panel + c * kTileRows,
            _mm512_mul_ps(_mm512_mul_ps(quad.column[c], bias), scales));
      }
      codes += 4 * kTileRows;
      panel += 4 * kTileRows;
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
