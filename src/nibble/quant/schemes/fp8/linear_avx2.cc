// Compiled for AVX2, FMA and F16C; see linear_kernels.h.
#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include "nibble/quant/schemes/fp8/linear_kernels.h"

namespace nibble::quant {
namespace {

// 16 rows.
struct Rows {
  __m256 low;
  __m256 high;
};

inline __m256 load_scales_half(const Fp8Weights& weights, std::int64_t first) {
  if (weights.scale_kind == ScaleKind::kF32) {
    return _mm256_loadu_ps(static_cast<const float*>(weights.scales) + first);
  }
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(
      static_cast<const std::uint16_t*>(weights.scales) + first));
  if (weights.scale_kind == ScaleKind::kF16) {
    return _mm256_cvtph_ps(half);
  }
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

// Scales of 16 rows, times the half of the bias that inputs do not carry.
inline Rows load_scales(const Fp8Weights& weights,
                        std::int64_t tile,
                        std::int64_t block) {
  const std::int64_t first = (tile * weights.blocks + block) * kTileRows;
  const __m256 bias = _mm256_set1_ps(kFp8HalfBias);
  return {_mm256_mul_ps(bias, load_scales_half(weights, first)),
          _mm256_mul_ps(bias, load_scales_half(weights, first + 8))};
}

struct Quad {
  __m256 column[4];
};

// The 4 columns of 8 rows of a run, times 2^-120. An arithmetic shift moves a
// code to its place in the upper half of a float and fills the exponent with
// copies of the sign, which the mask clears; done for two codes of a dword at
// a time.
inline Quad load_quad(const std::uint8_t* codes) {
  const __m256i run =
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  const __m256i mask = _mm256_set1_epi16(static_cast<short>(0x87F0));
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  const __m256i odd = _mm256_and_si256(_mm256_srai_epi16(run, 4), mask);
  const __m256i even =
      _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(run, 8), 4), mask);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(even, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(odd, 16)),
          _mm256_castsi256_ps(_mm256_and_si256(even, upper)),
          _mm256_castsi256_ps(_mm256_and_si256(odd, upper))};
}

inline std::int64_t block_end(const Fp8Weights& weights, std::int64_t block) {
  const std::int64_t end = (block + 1) * weights.block;
  return end < weights.columns ? end : weights.columns;
}

inline Rows add(Rows a, Rows b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

template <int kTokens>
void few(const Fp8Weights& weights,
         std::int64_t tile,
         const Fp8Inputs& inputs,
         float* out) {
  // Enough independent sums to hide the latency of the multiplication, few
  // enough for 16 registers.
  constexpr int kChains = kTokens <= 2 ? 2 : 1;
  const std::uint8_t* codes =
      weights.codes + tile * weights.columns * kTileRows;
  const float* values = inputs.values;
  Rows total[kTokens];
  for (Rows& rows : total) {
    rows = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  }
  std::int64_t column = 0;
  for (std::int64_t block = 0; block < weights.blocks; ++block) {
    const std::int64_t end = block_end(weights, block);
    Rows acc[kTokens][kChains];
    for (auto& token : acc) {
      for (Rows& rows : token) {
        rows = {_mm256_setzero_ps(), _mm256_setzero_ps()};
      }
    }
    for (; column < end; column += 4) {
      _mm_prefetch(reinterpret_cast<const char*>(codes) + 2048, _MM_HINT_T0);
      // One half after the other: both at once do not fit into registers.
      const Quad low = load_quad(codes);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          __m256& sum = acc[t][c % kChains].low;
          sum = _mm256_fmadd_ps(
              low.column[c], _mm256_set1_ps(values[c * kTokens + t]), sum);
        }
      }
      const Quad high = load_quad(codes + 32);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          __m256& sum = acc[t][c % kChains].high;
          sum = _mm256_fmadd_ps(
              high.column[c], _mm256_set1_ps(values[c * kTokens + t]), sum);
        }
      }
      codes += 4 * kTileRows;
      values += 4 * kTokens;
    }
    const Rows scales = load_scales(weights, tile, block);
    for (int t = 0; t < kTokens; ++t) {
      for (int width = kChains / 2; width > 0; width /= 2) {
        for (int c = 0; c < width; ++c) {
          acc[t][c] = add(acc[t][c], acc[t][c + width]);
        }
      }
      total[t] = {_mm256_fmadd_ps(acc[t][0].low, scales.low, total[t].low),
                  _mm256_fmadd_ps(acc[t][0].high, scales.high, total[t].high)};
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    _mm256_storeu_ps(out + t * kTileRows, total[t].low);
    _mm256_storeu_ps(out + t * kTileRows + 8, total[t].high);
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
  const __m256 bias = _mm256_set1_ps(kFp8HalfBias);
  std::int64_t column = range.first;
  const std::int64_t last = range.first + range.count;
  while (column < last) {
    const std::int64_t block = column / weights.block;
    const std::int64_t block_last = block_end(weights, block);
    const std::int64_t end = block_last < last ? block_last : last;
    const Rows scales = load_scales(weights, tile, block);
    for (; column < end; column += 4) {
      const Quad low = load_quad(codes);
      const Quad high = load_quad(codes + 32);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        float* to = panel + c * kTileRows;
        _mm256_storeu_ps(
            to, _mm256_mul_ps(_mm256_mul_ps(low.column[c], bias), scales.low));
        _mm256_storeu_ps(
            to + 8,
            _mm256_mul_ps(_mm256_mul_ps(high.column[c], bias), scales.high));
      }
      codes += 4 * kTileRows;
      panel += 4 * kTileRows;
    }
  }
}

// One panel: kTokens x 16 results in registers.
template <int kTokens>
void multiply(ColumnRange range,
              const float* panel,
              const Fp8Inputs& inputs,
              std::int64_t stride,
              float* out) {
  const float* values = inputs.values + range.first * kTokens;
  __m256 low[kTokens];
  __m256 high[kTokens];
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    low[t] = _mm256_loadu_ps(out + t * stride);
    high[t] = _mm256_loadu_ps(out + t * stride + 8);
  }
  for (std::int64_t i = 0; i < range.count; ++i) {
    const __m256 weight_low = _mm256_loadu_ps(panel);
    const __m256 weight_high = _mm256_loadu_ps(panel + 8);
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      const __m256 value = _mm256_set1_ps(values[t]);
      low[t] = _mm256_fmadd_ps(weight_low, value, low[t]);
      high[t] = _mm256_fmadd_ps(weight_high, value, high[t]);
    }
    panel += kTileRows;
    values += kTokens;
  }
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    _mm256_storeu_ps(out + t * stride, low[t]);
    _mm256_storeu_ps(out + t * stride + 8, high[t]);
  }
}

template <int kTokens>
void multiply_tokens(ColumnRange range,
                     const float* panel,
                     const Fp8Inputs& inputs,
                     std::int64_t stride,
                     float* out) {
  if constexpr (kTokens > 1) {
    if (inputs.tokens < kTokens) {
      return multiply_tokens<kTokens - 1>(range, panel, inputs, stride, out);
    }
  }
  multiply<kTokens>(range, panel, inputs, stride, out);
}

void multiply_tiles(int tiles,
                    ColumnRange range,
                    const float* panel,
                    std::int64_t panel_stride,
                    const Fp8Inputs& inputs,
                    float* out) {
  for (int r = 0; r < tiles; ++r) {
    multiply_tokens<6>(range,
                       panel + r * panel_stride,
                       inputs,
                       tiles * kTileRows,
                       out + r * kTileRows);
  }
}

}  // namespace

const Fp8Kernels kFp8Avx2 = {
    .few_tokens = 4,
    .panel_tokens = 6,
    .few = few_any,
    .unpack = unpack,
    .panel = multiply_tiles,
};

}  // namespace nibble::quant
