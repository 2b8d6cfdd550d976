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

// Codes of one row of a run, in column order.
void unpack_row(std::uint32_t dword, int bits, std::int16_t* codes) {
  if (bits == 4) {
    for (int column = 0; column < 8; ++column) {
      const int shift = 16 * (column % 2) + 4 * (column / 2);
      codes[column] = static_cast<std::int16_t>((dword >> shift) & 15u);
    }
    return;
  }
  for (int column = 0; column < 4; ++column) {
    const int shift = 16 * (column % 2) + 8 * (column / 2);
    codes[column] = static_cast<std::int8_t>((dword >> shift) & 0xFFu);
  }
}

void unpack(const IntegerWeights& weights,
            std::int64_t tile,
            BlockRange range,
            std::int16_t* panel) {
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
      for (int r = 0; r < kRows; ++r) {
        std::uint32_t dword = 0;
        std::memcpy(&dword, codes + 4 * r, sizeof dword);
        if constexpr (std::endian::native == std::endian::big) {
          dword = __builtin_bswap32(dword);
        }
        std::array<std::int16_t, 8> row{};
        unpack_row(dword, weights.bits, row.data());
        for (int column = 0; column < run_columns; ++column) {
          panel[(column / 2) * 2 * kRows + 2 * r + column % 2] =
              static_cast<std::int16_t>(row[column] - zeros[r]);
        }
      }
      panel += run_columns * kRows;
    }
  }
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
  const std::int32_t* pairs = inputs.pairs + first_pair * inputs.tokens + token;
  for (std::int64_t b = range.first; b < range.first + range.count; ++b) {
    std::array<std::int32_t, kRows> sums{};
    const std::int64_t count = block_columns(weights, b) / 2;
    for (std::int64_t p = 0; p < count; ++p) {
      const auto pair = static_cast<std::uint32_t>(*pairs);
      const auto low = static_cast<std::int16_t>(pair & 0xFFFFu);
      const auto high = static_cast<std::int16_t>(pair >> 16);
      for (int r = 0; r < kRows; ++r) {
        sums[r] += panel[2 * r] * low + panel[2 * r + 1] * high;
      }
      panel += 2 * kRows;
      pairs += inputs.tokens;
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
                     const std::int16_t* panel,
                     std::int64_t panel_stride,
                     const IntegerInputs& inputs,
                     float* out) {
  for (int r = 0; r < tiles; ++r) {
    for (int t = 0; t < inputs.tokens; ++t) {
      multiply(weights,
               tile + r,
               range,
               panel + r * panel_stride,
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
    .few = nullptr,
    .unpack = unpack,
    .panel = multiply_tokens,
};

}  // namespace nibble::quant
