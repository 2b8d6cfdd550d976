// Compiled for AVX-512 F, BW, DQ, VL and VNNI; see linear_kernels.h.
#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include "nibble/quant/schemes/integer/linear_kernels.h"

namespace nibble::quant {
namespace {

// acc += a.low * b.low + a.high * b.high in each dword. GCC 12 spills the
// accumulators of the intrinsic to the stack, hence the assembly.
inline __m512i dot_pairs(__m512i acc, __m512i a, __m512i b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
}

// The same with one dword of memory for all rows.
inline __m512i dot_pairs(__m512i acc, __m512i a, const std::int32_t* b) {
  asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(a), "m"(*b));
  return acc;
}

inline __m512 load_scales(const IntegerWeights& weights,
                          std::int64_t tile,
                          std::int64_t block) {
  const std::int64_t first =
      (tile * weights.scales_per_row + block / weights.blocks_per_scale) *
      kTileRows;
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

// Zero points of the 16 rows, in the offset in which codes are stored.
inline __m512i load_zeros(const IntegerWeights& weights,
                          std::int64_t tile,
                          std::int64_t block) {
  if (weights.zeros == nullptr) {
    return _mm512_set1_epi32(weights.bits == 4 ? 8 : 0);
  }
  const std::int64_t first =
      (tile * weights.scales_per_row + block / weights.blocks_per_scale) *
      kTileRows;
  return _mm512_cvtepi8_epi32(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights.zeros + first)));
}

inline std::int64_t block_columns(const IntegerWeights& weights,
                                  std::int64_t block) {
  const std::int64_t left = weights.columns - block * weights.block;
  return left < weights.block ? left : weights.block;
}

// Pair j of a run: columns 2j and 2j + 1 of each row as 16-bit numbers.
template <int kBits, int kPair>
inline __m512i unpack_pair(__m512i run) {
  if constexpr (kBits == 8) {
    return kPair == 0 ? _mm512_srai_epi16(_mm512_slli_epi16(run, 8), 8)
                      : _mm512_srai_epi16(run, 8);
  } else if constexpr (kPair == 3) {
    return _mm512_srli_epi16(run, 12);
  } else {
    return _mm512_and_si512(_mm512_srli_epi16(run, 4 * kPair),
                            _mm512_set1_epi16(15));
  }
}

template <int kBits>
inline constexpr int kPairsOfRun = kBits == 4 ? 4 : 2;

template <int kBits, int kTokens>
void few(const IntegerWeights& weights,
         std::int64_t tile,
         const IntegerInputs& inputs,
         float* out) {
  constexpr int kPairs = kPairsOfRun<kBits>;
  // Enough independent sums to hide the latency of the dot product.
  constexpr int kChains = kTokens == 1 ? kPairs : 2;
  const std::uint8_t* codes = weights.codes + tile * weights.tile_bytes;
  const std::int32_t* pairs = inputs.words;
  __m512 total[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    total[t] = _mm512_setzero_ps();
  }
  for (std::int64_t block = 0; block < weights.blocks; ++block) {
    __m512i acc[kTokens][kChains];
    for (int t = 0; t < kTokens; ++t) {
      for (int c = 0; c < kChains; ++c) {
        acc[t][c] = _mm512_setzero_si512();
      }
    }
    const std::int64_t runs = block_columns(weights, block) / (2 * kPairs);
    for (std::int64_t i = 0; i < runs; ++i) {
      const __m512i run = _mm512_loadu_si512(codes);
      // The next group of rows is far enough for the hardware's own
      // prefetching to lose the stream at the end of a page.
      _mm_prefetch(reinterpret_cast<const char*>(codes) + 2048, _MM_HINT_T0);
      const auto add_pair = [&]<int kPair>() {
        const __m512i pair = unpack_pair<kBits, kPair>(run);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          acc[t][kPair % kChains] = dot_pairs(
              acc[t][kPair % kChains], pair, pairs + kPair * kTokens + t);
        }
      };
      add_pair.template operator()<0>();
      add_pair.template operator()<1>();
      if constexpr (kPairs == 4) {
        add_pair.template operator()<2>();
        add_pair.template operator()<3>();
      }
      codes += 64;
      pairs += kPairs * kTokens;
    }
    const __m512 scales = load_scales(weights, tile, block);
    const __m512i zeros = load_zeros(weights, tile, block);
    for (int t = 0; t < kTokens; ++t) {
      __m512i sum = acc[t][0];
      for (int c = 1; c < kChains; ++c) {
        sum = _mm512_add_epi32(sum, acc[t][c]);
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

template <int kBits>
void unpack_bits(const IntegerWeights& weights,
                 std::int64_t tile,
                 BlockRange range,
                 std::int16_t* panel) {
  constexpr int kPairs = kPairsOfRun<kBits>;
  const std::uint8_t* codes =
      weights.codes + tile * weights.tile_bytes +
      range.first * weights.block * kTileRows * kBits / 8;
  for (std::int64_t b = range.first; b < range.first + range.count; ++b) {
    const __m512i dwords = load_zeros(weights, tile, b);
    const __m512i zeros =
        _mm512_or_si512(_mm512_slli_epi32(dwords, 16),
                        _mm512_and_si512(dwords, _mm512_set1_epi32(0xFFFF)));
    const std::int64_t runs = block_columns(weights, b) / (2 * kPairs);
    for (std::int64_t i = 0; i < runs; ++i, codes += 64) {
      const __m512i run = _mm512_loadu_si512(codes);
      const auto store = [&]<int kPair>() {
        _mm512_storeu_si512(
            panel + kPair * 32,
            _mm512_sub_epi16(unpack_pair<kBits, kPair>(run), zeros));
      };
      store.template operator()<0>();
      store.template operator()<1>();
      if constexpr (kPairs == 4) {
        store.template operator()<2>();
        store.template operator()<3>();
      }
      panel += kPairs * 32;
    }
  }
}

void unpack(const IntegerWeights& weights,
            std::int64_t tile,
            BlockRange range,
            void* panel) {
  auto* codes = static_cast<std::int16_t*>(panel);
  if (weights.bits == 4) {
    unpack_bits<4>(weights, tile, range, codes);
  } else {
    unpack_bits<8>(weights, tile, range, codes);
  }
}

// kTokens x 16 kTiles results in registers: at most 12 x 32.
template <int kTokens, int kTiles>
void multiply(const IntegerWeights& weights,
              std::int64_t tile,
              BlockRange range,
              const std::int16_t* panel,
              std::int64_t panel_stride,
              const IntegerInputs& inputs,
              float* out) {
  const std::int32_t* pairs =
      inputs.words + range.first * weights.block / 2 * kTokens;
  for (std::int64_t b = range.first; b < range.first + range.count; ++b) {
    __m512i acc[kTokens][kTiles];
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
      for (int r = 0; r < kTiles; ++r) {
        acc[t][r] = _mm512_setzero_si512();
      }
    }
    const std::int64_t count = block_columns(weights, b) / 2;
    for (std::int64_t p = 0; p < count; ++p) {
      __m512i codes[kTiles];
#pragma GCC unroll 2
      for (int r = 0; r < kTiles; ++r) {
        codes[r] = _mm512_loadu_si512(panel + r * panel_stride);
      }
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) {
        const __m512i pair = _mm512_set1_epi32(pairs[t]);
#pragma GCC unroll 2
        for (int r = 0; r < kTiles; ++r) {
          acc[t][r] = dot_pairs(acc[t][r], codes[r], pair);
        }
      }
      panel += 32;
      pairs += kTokens;
    }
    __m512 scales[kTiles];
#pragma GCC unroll 2
    for (int r = 0; r < kTiles; ++r) {
      scales[r] = load_scales(weights, tile + r, b);
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
  const auto* codes = static_cast<const std::int16_t*>(panel);
  const std::int64_t stride = panel_bytes / 2;
  if (tiles == 2) {
    multiply<kTokens, 2>(weights, tile, range, codes, stride, inputs, out);
  } else {
    multiply<kTokens, 1>(weights, tile, range, codes, stride, inputs, out);
  }
}

}  // namespace

const IntegerKernels kIntegerAvx512 = {
    .few_tokens = 4,
    .panel_tokens = 12,
    .input_bits = 16,
    .few = few_any,
    .unpack = unpack,
    .panel = multiply_tokens<12>,
};

}  // namespace nibble::quant
