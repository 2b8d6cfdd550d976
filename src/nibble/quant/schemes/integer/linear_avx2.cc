// Compiled for AVX2, FMA and F16C; see linear_kernels.h.
#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include "nibble/quant/schemes/integer/linear_kernels.h"

namespace nibble::quant {
namespace {

// A tile of 16 rows is two vectors of 8.
constexpr int kHalves = 2;

inline __m256i dot_pairs(__m256i acc, __m256i a, __m256i b) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}

inline std::int64_t scale_index(const IntegerWeights& weights,
                                std::int64_t tile,
                                std::int64_t block,
                                int half) {
  return (tile * weights.scales_per_row + block / weights.blocks_per_scale) *
             kTileRows +
         half * 8;
}

inline __m256 load_scales(const IntegerWeights& weights, std::int64_t first) {
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

// Zero points of 8 rows, in the offset in which codes are stored.
inline __m256i load_zeros(const IntegerWeights& weights, std::int64_t first) {
  if (weights.zeros == nullptr) {
    return _mm256_set1_epi32(weights.bits == 4 ? 8 : 0);
  }
  return _mm256_cvtepi8_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights.zeros + first)));
}

inline std::int64_t block_columns(const IntegerWeights& weights,
                                  std::int64_t block) {
  const std::int64_t left = weights.columns - block * weights.block;
  return left < weights.block ? left : weights.block;
}

// Pair j of a run: columns 2j and 2j + 1 of each row as 16-bit numbers.
template <int kBits, int kPair>
inline __m256i unpack_pair(__m256i run) {
  if constexpr (kBits == 8) {
    return kPair == 0 ? _mm256_srai_epi16(_mm256_slli_epi16(run, 8), 8)
                      : _mm256_srai_epi16(run, 8);
  } else if constexpr (kPair == 3) {
    return _mm256_srli_epi16(run, 12);
  } else {
    return _mm256_and_si256(_mm256_srli_epi16(run, 4 * kPair),
                            _mm256_set1_epi16(15));
  }
}

template <int kBits>
inline constexpr int kPairsOfRun = kBits == 4 ? 4 : 2;

inline __m256i load_half(const std::uint8_t* run, int half) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(run) + half);
}

template <int kBits, int kTokens>
void few(const IntegerWeights& weights,
         std::int64_t tile,
         const IntegerInputs& inputs,
         float* out) {
  constexpr int kPairs = kPairsOfRun<kBits>;
  const std::uint8_t* codes = weights.codes + tile * weights.tile_bytes;
  const std::int32_t* pairs = inputs.words;
  __m256 total[kTokens][kHalves];
  for (int t = 0; t < kTokens; ++t) {
    total[t][0] = total[t][1] = _mm256_setzero_ps();
  }
  for (std::int64_t block = 0; block < weights.blocks; ++block) {
    __m256i acc[kTokens][kHalves];
    for (int t = 0; t < kTokens; ++t) {
      acc[t][0] = acc[t][1] = _mm256_setzero_si256();
    }
    const std::int64_t runs = block_columns(weights, block) / (2 * kPairs);
    for (std::int64_t i = 0; i < runs; ++i) {
      const __m256i low = load_half(codes, 0);
      const __m256i high = load_half(codes, 1);
      _mm_prefetch(reinterpret_cast<const char*>(codes) + 2048, _MM_HINT_T0);
      const auto add_pair = [&]<int kPair>() {
        const __m256i pair_low = unpack_pair<kBits, kPair>(low);
        const __m256i pair_high = unpack_pair<kBits, kPair>(high);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          const __m256i input = _mm256_set1_epi32(pairs[kPair * kTokens + t]);
          acc[t][0] = dot_pairs(acc[t][0], pair_low, input);
          acc[t][1] = dot_pairs(acc[t][1], pair_high, input);
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
    for (int half = 0; half < kHalves; ++half) {
      const std::int64_t first = scale_index(weights, tile, block, half);
      const __m256 scales = load_scales(weights, first);
      const __m256i zeros = load_zeros(weights, first);
      for (int t = 0; t < kTokens; ++t) {
        const std::int64_t at = t * weights.blocks + block;
        const __m256i sum = _mm256_sub_epi32(
            acc[t][half],
            _mm256_mullo_epi32(zeros, _mm256_set1_epi32(inputs.sums[at])));
        total[t][half] = _mm256_fmadd_ps(
            _mm256_cvtepi32_ps(sum),
            _mm256_mul_ps(scales, _mm256_set1_ps(inputs.scales[at])),
            total[t][half]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    _mm256_storeu_ps(out + t * kTileRows, total[t][0]);
    _mm256_storeu_ps(out + t * kTileRows + 8, total[t][1]);
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
    __m256i zeros[kHalves];
    for (int half = 0; half < kHalves; ++half) {
      const __m256i dwords =
          load_zeros(weights, scale_index(weights, tile, b, half));
      zeros[half] =
          _mm256_or_si256(_mm256_slli_epi32(dwords, 16),
                          _mm256_and_si256(dwords, _mm256_set1_epi32(0xFFFF)));
    }
    const std::int64_t runs = block_columns(weights, b) / (2 * kPairs);
    for (std::int64_t i = 0; i < runs; ++i, codes += 64) {
      for (int half = 0; half < kHalves; ++half) {
        const __m256i run = load_half(codes, half);
        const auto store = [&]<int kPair>() {
          _mm256_storeu_si256(
              reinterpret_cast<__m256i*>(panel + kPair * 32 + half * 16),
              _mm256_sub_epi16(unpack_pair<kBits, kPair>(run), zeros[half]));
        };
        store.template operator()<0>();
        store.template operator()<1>();
        if constexpr (kPairs == 4) {
          store.template operator()<2>();
          store.template operator()<3>();
        }
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

// One tile of `tiles`, whose results start at out with `stride` floats a
// token: kTokens x 16 results in registers.
template <int kTokens>
void multiply(const IntegerWeights& weights,
              std::int64_t tile,
              BlockRange range,
              const std::int16_t* panel,
              const IntegerInputs& inputs,
              std::int64_t stride,
              float* out) {
  const std::int32_t* pairs =
      inputs.words + range.first * weights.block / 2 * kTokens;
  for (std::int64_t b = range.first; b < range.first + range.count; ++b) {
    __m256i acc[kTokens][kHalves];
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      acc[t][0] = acc[t][1] = _mm256_setzero_si256();
    }
    const std::int64_t count = block_columns(weights, b) / 2;
    for (std::int64_t p = 0; p < count; ++p) {
      const auto* codes = reinterpret_cast<const __m256i*>(panel);
      const __m256i low = _mm256_loadu_si256(codes);
      const __m256i high = _mm256_loadu_si256(codes + 1);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const __m256i input = _mm256_set1_epi32(pairs[t]);
        acc[t][0] = dot_pairs(acc[t][0], low, input);
        acc[t][1] = dot_pairs(acc[t][1], high, input);
      }
      panel += 32;
      pairs += kTokens;
    }
    for (int half = 0; half < kHalves; ++half) {
      const __m256 scales =
          load_scales(weights, scale_index(weights, tile, b, half));
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        float* at = out + t * stride + half * 8;
        const __m256 factor = _mm256_mul_ps(
            scales, _mm256_set1_ps(inputs.scales[t * weights.blocks + b]));
        _mm256_storeu_ps(
            at,
            _mm256_fmadd_ps(
                _mm256_cvtepi32_ps(acc[t][half]), factor, _mm256_loadu_ps(at)));
      }
    }
  }
}

void multiply_tokens(const IntegerWeights& weights,
                     std::int64_t tile,
                     int tiles,
                     BlockRange range,
                     const void* panel,
                     std::int64_t panel_bytes,
                     const IntegerInputs& inputs,
                     float* out) {
  const std::int64_t stride = tiles * kTileRows;
  for (int r = 0; r < tiles; ++r) {
    const std::int16_t* codes =
        static_cast<const std::int16_t*>(panel) + r * panel_bytes / 2;
    float* rows = out + r * kTileRows;
    switch (inputs.tokens) {
      case 1:
        multiply<1>(weights, tile + r, range, codes, inputs, stride, rows);
        break;
      case 2:
        multiply<2>(weights, tile + r, range, codes, inputs, stride, rows);
        break;
      case 3:
        multiply<3>(weights, tile + r, range, codes, inputs, stride, rows);
        break;
      default:
        multiply<4>(weights, tile + r, range, codes, inputs, stride, rows);
    }
  }
}

}  // namespace

const IntegerKernels kIntegerAvx2 = {
    .few_tokens = 4,
    .panel_tokens = 4,
    .input_bits = 16,
    .few = few_any,
    .unpack = unpack,
    .panel = multiply_tokens,
};

}  // namespace nibble::quant
