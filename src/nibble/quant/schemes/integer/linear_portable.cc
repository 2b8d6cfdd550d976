// The kernels in plain C++, for every processor; see linear_kernels.h.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "nibble/quant/schemes/integer/linear_kernels.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

constexpr int kRows = static_cast<int>(kTileRows);

std::int64_t scale_index(const IntegerWeights& weights,
                         std::int64_t tile,
                         std::int64_t block) {
  return (tile * weights.scales_per_row + block / weights.blocks_per_scale) *
         kTileRows;
}

float load_scale(const IntegerWeights& weights, std::int64_t index) {
  if (weights.scale_kind == ScaleKind::kF32) {
    return static_cast<const float*>(weights.scales)[index];
  }
  const auto bits = static_cast<const std::uint16_t*>(weights.scales)[index];
  return weights.scale_kind == ScaleKind::kF16 ? f16_to_float(bits)
                                               : bf16_to_float(bits);
}

std::int64_t block_columns(const IntegerWeights& weights, std::int64_t block) {
  return std::min(weights.block, weights.columns - block * weights.block);
}

// panel (columns, 16): unlike the other kernels this one keeps columns apart,
// so that compilers find plain products of 16-bit numbers.
void unpack(const IntegerWeights& weights,
            std::int64_t tile,
            BlockRange range,
            void* out) {
  auto* panel = static_cast<std::int16_t*>(out);
  const int run_columns = 32 / weights.bits;
  const std::uint8_t* codes =
      weights.codes + tile * weights.tile_bytes +
      range.first * weights.block * kTileRows * weights.bits / 8;
  for (std::int64_t b = range.first; b < range.first + range.count; ++b) {
    std::array<std::int16_t, kRows> zeros{};
    for (int r = 0; r < kRows; ++r) {
      zeros[r] = weights.zeros != nullptr
                     ? weights.zeros[scale_index(weights, tile, b) + r]
                     : static_cast<std::int16_t>(weights.bits == 4 ? 8 : 0);
    }
    const std::int64_t runs = block_columns(weights, b) / run_columns;
    for (std::int64_t i = 0; i < runs; ++i, codes += 64) {
      std::array<std::uint32_t, kRows> dwords{};
      std::memcpy(dwords.data(), codes, sizeof dwords);
      if constexpr (std::endian::native == std::endian::big) {
        for (std::uint32_t& dword : dwords) {
          dword = __builtin_bswap32(dword);
        }
      }
      for (int column = 0; column < run_columns; ++column) {
        const int shift = 16 * (column % 2) + weights.bits * (column / 2);
        std::int16_t* to = panel + column * kRows;
        if (weights.bits == 4) {
#pragma GCC unroll 1
          for (int r = 0; r < kRows; ++r) {
            to[r] = static_cast<std::int16_t>(
                static_cast<int>((dwords[r] >> shift) & 15u) - zeros[r]);
          }
        } else {
#pragma GCC unroll 1
          for (int r = 0; r < kRows; ++r) {
            const auto code = static_cast<std::int8_t>(dwords[r] >> shift);
            to[r] = static_cast<std::int16_t>(code - zeros[r]);
          }
        }
      }
      panel += run_columns * kRows;
    }
  }
}

std::int16_t low_half(std::int32_t pair) {
  return static_cast<std::int16_t>(pair & 0xFFFF);
}

std::int16_t high_half(std::int32_t pair) {
  return static_cast<std::int16_t>(pair >> 16);
}

// One token and tile: 16 sums at a time, which compilers keep in vectors.
void multiply(const IntegerWeights& weights,
              std::int64_t tile,
              BlockRange range,
              const std::int16_t* panel,
              const IntegerInputs& inputs,
              int token,
              float* out) {
  const std::int64_t first_pair = range.first * weights.block / 2;
  const std::int32_t* pairs = inputs.words + first_pair * inputs.tokens + token;
  for (std::int64_t b = range.first; b < range.first + range.count; ++b) {
    std::array<std::int32_t, kRows> sums{};
    const std::int64_t columns = block_columns(weights, b);
    for (std::int64_t i = 0; i < columns; i += 4) {
      const std::int16_t x0 = low_half(pairs[0]);
      const std::int16_t x1 = high_half(pairs[0]);
      const std::int16_t x2 = low_half(pairs[inputs.tokens]);
      const std::int16_t x3 = high_half(pairs[inputs.tokens]);
// 16-bit factors are what compilers have a vector product of. Left rolled, the
// loop becomes vectors; unrolled first, it stays scalar.
#pragma GCC unroll 1
      for (int r = 0; r < kRows; ++r) {
        sums[r] += panel[r] * x0 + panel[kRows + r] * x1 +
                   panel[2 * kRows + r] * x2 + panel[3 * kRows + r] * x3;
      }
      panel += 4 * kRows;
      pairs += 2 * inputs.tokens;
    }
    const float input_scale = inputs.scales[token * weights.blocks + b];
    const std::int64_t first = scale_index(weights, tile, b);
    for (int r = 0; r < kRows; ++r) {
      out[r] += static_cast<float>(sums[r]) *
                (load_scale(weights, first + r) * input_scale);
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
  for (int r = 0; r < tiles; ++r) {
    for (int t = 0; t < inputs.tokens; ++t) {
      multiply(weights,
               tile + r,
               range,
               static_cast<const std::int16_t*>(panel) + r * panel_bytes / 2,
               inputs,
               t,
               out + (t * tiles + r) * kRows);
    }
  }
}

}  // namespace

const IntegerKernels kIntegerPortable = {
    .few_tokens = 0,
    .panel_tokens = 8,
    .input_bits = 16,
    .few = nullptr,
    .unpack = unpack,
    .panel = multiply_tokens,
};

}  // namespace nibble::quant
