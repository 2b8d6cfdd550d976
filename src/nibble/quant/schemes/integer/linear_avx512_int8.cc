// Kernels for inputs of int8 codes, in products of 8 bits: twice as many an
// instruction as products of 16. Compiled for AVX-512 F, BW, DQ, VL and VNNI;
// see linear_kernels.h.
#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include "nibble/quant/schemes/integer/linear_kernels.h"

namespace nibble::quant {
namespace {

// acc += the four products of unsigned bytes of a and signed bytes of b in
// each dword. GCC 12 spills the accumulators of the intrinsic to the stack,
// hence the assembly.
inline __m512i dot_quads(__m512i acc, __m512i a, __m512i b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
}

// The same with one dword of memory for all rows.
inline __m512i dot_quads(__m512i acc, __m512i a, const std::int32_t* b) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(a), "m"(*b));
  return acc;
}

inline std::int64_t scale_index(const IntegerWeights& weights,
                                std::int64_t tile,
                                std::int64_t block) {
  return (tile * weights.scales_per_row + block / weights.blocks_per_scale) *
         kTileRows;
}

inline __m512 load_scales(const IntegerWeights& weights, std::int64_t first) {
  if (weights.scale_kind == ScaleKind::kF32) {
    return _mm512_loadu_ps(static_cast<const float*>(weights.scales) + first);
  }
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(
      static_cast<const std::uint16_t*>(weights.scales) + first));
  if (weights.scale_kind == ScaleKind::kF16) {
    return _mm512_cvtph_ps(half);
  }
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// What unsigned codes of 16 rows are too large by.
inline __m512i load_zeros(const IntegerWeights& weights, std::int64_t first) {
  const int offset = weights.bits == 4 ? 0 : 128;
  if (weights.zeros == nullptr) {
    return _mm512_set1_epi32(weights.bits == 4 ? 8 : offset);
  }
  return _mm512_add_epi32(
      _mm512_set1_epi32(offset),
      _mm512_cvtepi8_epi32(_mm_loadu_si128(
          reinterpret_cast<const __m128i*>(weights.zeros + first))));
}

inline std::int64_t block_columns(const IntegerWeights& weights,
                                  std::int64_t block) {
  const std::int64_t left = weights.columns - block * weights.block;
  return left < weights.block ? left : weights.block;
}

template <int kBits>
inline constexpr int kQuadsOfRun = kBits == 4 ? 2 : 1;

// Quad q of a run as unsigned bytes.
template <int kBits, int kQuad>
inline __m512i unpack_quad(__m512i run) {
  if constexpr (kBits == 8) {
    return _mm512_xor_si512(run, _mm512_set1_epi8(static_cast<char>(0x80)));
  } else {
    return _mm512_and_si512(kQuad == 0 ? run : _mm512_srli_epi16(run, 4),
                            _mm512_set1_epi8(15));
  }
}

template <int kBits, int kTokens>
void few(const IntegerWeights& weights,
         std::int64_t tile,
         const IntegerInputs& inputs,
         float* out) {
  constexpr int kQuads = kQuadsOfRun<kBits>;
  const std::uint8_t* codes = weights.codes + tile * weights.tile_bytes;
  const std::int32_t* quads = inputs.words;
  __m512 total[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    total[t] = _mm512_setzero_ps();
  }
  for (std::int64_t block = 0; block < weights.blocks; ++block) {
    __m512i acc[kTokens][kQuads];
    for (int t = 0; t < kTokens; ++t) {
      for (int q = 0; q < kQuads; ++q) {
        acc[t][q] = _mm512_setzero_si512();
      }
    }
    const std::int64_t runs = block_columns(weights, block) / (4 * kQuads);
    for (std::int64_t i = 0; i < runs; ++i) {
      const __m512i run = _mm512_loadu_si512(codes);
      _mm_prefetch(reinterpret_cast<const char*>(codes) + 2048, _MM_HINT_T0);
      const auto add_quad = [&]<int kQuad>() {
        const __m512i quad = unpack_quad<kBits, kQuad>(run);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          acc[t][kQuad] =
              dot_quads(acc[t][kQuad], quad, quads + kQuad * kTokens + t);
        }
      };
      add_quad.template operator()<0>();
      if constexpr (kQuads == 2) {
        add_quad.template operator()<1>();
      }
      codes += 64;
      quads += kQuads * kTokens;
    }
    const std::int64_t first = scale_index(weights, tile, block);
    const __m512 scales = load_scales(weights, first);
    const __m512i zeros = load_zeros(weights, first);
    for (int t = 0; t < kTokens; ++t) {
      __m512i sum = acc[t][0];
      for (int q = 1; q < kQuads; ++q) {
        sum = _mm512_add_epi32(sum, acc[t][q]);
      }
      const std::int64_t at = t * weights.blocks + block;
      sum = _mm512_sub_epi32(
          sum, _mm512_mullo_epi32(zeros, _mm512_set1_epi32(inputs.sums[at])));
      total[t] = _mm512_fmadd_ps(
          _mm512_cvtepi32_ps(sum),
          _mm512_mul_ps(scales, _mm512_set1_ps(inputs.scales[at])),
          total[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    _mm512_storeu_ps(out + t * kTileRows, total[t]);
  }
}

template <int kBits>
void few_of(const IntegerWeights& weights,
            std::int64_t tile,
            const IntegerInputs& inputs,
            float* out) {
  switch (inputs.tokens) {
    case 1:
      return few<kBits, 1>(weights, tile, inputs, out);
    case 2:
      return few<kBits, 2>(weights, tile, inputs, out);
    case 3:
      return few<kBits, 3>(weights, tile, inputs, out);
    default:
      return few<kBits, 4>(weights, tile, inputs, out);
  }
}

void few_any(const IntegerWeights& weights,
             std::int64_t tile,
             const IntegerInputs& inputs,
             float* out) {
  if (weights.bits == 4) {
    few_of<4>(weights, tile, inputs, out);
  } else {
    few_of<8>(weights, tile, inputs, out);
  }
}

// panel (columns / 4, 16, 4) = unsigned codes, zero points still in them.
void unpack(const IntegerWeights& weights,
            std::int64_t tile,
            BlockRange range,
            void* panel) {
  const std::int64_t first_column = range.first * weights.block;
  const std::uint8_t* codes = weights.codes + tile * weights.tile_bytes +
                              first_column * kTileRows * weights.bits / 8;
  const std::int64_t end = (range.first + range.count) * weights.block;
  const std::int64_t columns =
      (end < weights.columns ? end : weights.columns) - first_column;
  auto* to = static_cast<std::uint8_t*>(panel);
  for (std::int64_t column = 0; column < columns;) {
    const __m512i run = _mm512_loadu_si512(codes);
    codes += 64;
    if (weights.bits == 4) {
      _mm512_storeu_si512(to, unpack_quad<4, 0>(run));
      _mm512_storeu_si512(to + 64, unpack_quad<4, 1>(run));
      to += 128;
      column += 8;
    } else {
      _mm512_storeu_si512(to, unpack_quad<8, 0>(run));
      to += 64;
      column += 4;
    }
  }
}

// kTokens x 16 kTiles results in registers: at most 12 x 32.
template <int kTokens, int kTiles>
void multiply(const IntegerWeights& weights,
              std::int64_t tile,
              BlockRange range,
              const std::uint8_t* panel,
              std::int64_t panel_bytes,
              const IntegerInputs& inputs,
              float* out) {
  const std::int32_t* quads =
      inputs.words + range.first * weights.block / 4 * kTokens;
  for (std::int64_t b = range.first; b < range.first + range.count; ++b) {
    __m512i zeros[kTiles];
    __m512 scales[kTiles];
#pragma GCC unroll 2
    for (int r = 0; r < kTiles; ++r) {
      const std::int64_t first = scale_index(weights, tile + r, b);
      zeros[r] = load_zeros(weights, first);
      scales[r] = load_scales(weights, first);
    }
    __m512i acc[kTokens][kTiles];
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
      const __m512i sum =
          _mm512_set1_epi32(-inputs.sums[t * weights.blocks + b]);
#pragma GCC unroll 2
      for (int r = 0; r < kTiles; ++r) {
        acc[t][r] = _mm512_mullo_epi32(zeros[r], sum);
      }
    }
    const std::int64_t count = block_columns(weights, b) / 4;
    for (std::int64_t q = 0; q < count; ++q) {
      __m512i codes[kTiles];
#pragma GCC unroll 2
      for (int r = 0; r < kTiles; ++r) {
        codes[r] = _mm512_loadu_si512(panel + r * panel_bytes);
      }
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) {
        const __m512i quad = _mm512_set1_epi32(quads[t]);
#pragma GCC unroll 2
        for (int r = 0; r < kTiles; ++r) {
          acc[t][r] = dot_quads(acc[t][r], codes[r], quad);
        }
      }
      panel += 64;
      quads += kTokens;
    }
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
      const __m512 input_scale =
          _mm512_set1_ps(inputs.scales[t * weights.blocks + b]);
#pragma GCC unroll 2
      for (int r = 0; r < kTiles; ++r) {
        float* at = out + (t * kTiles + r) * kTileRows;
        _mm512_storeu_ps(at,
                         _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[t][r]),
                                         _mm512_mul_ps(scales[r], input_scale),
                                         _mm512_loadu_ps(at)));
      }
    }
  }
}

template <int kTokens>
void multiply_tokens(const IntegerWeights& weights,
                     std::int64_t tile,
                     int tiles,
                     BlockRange range,
                     const void* panel,
                     std::int64_t panel_bytes,
                     const IntegerInputs& inputs,
                     float* out) {
  if constexpr (kTokens > 1) {
    if (inputs.tokens < kTokens) {
      return multiply_tokens<kTokens - 1>(
          weights, tile, tiles, range, panel, panel_bytes, inputs, out);
    }
  }
  const auto* codes = static_cast<const std::uint8_t*>(panel);
  if (tiles == 2) {
    multiply<kTokens, 2>(weights, tile, range, codes, panel_bytes, inputs, out);
  } else {
    multiply<kTokens, 1>(weights, tile, range, codes, panel_bytes, inputs, out);
  }
}

}  // namespace

const IntegerKernels kIntegerAvx512Int8 = {
    .few_tokens = 4,
    .panel_tokens = 12,
    .input_bits = 8,
    .few = few_any,
    .unpack = unpack,
    .panel = multiply_tokens<12>,
};

}  // namespace nibble::quant
