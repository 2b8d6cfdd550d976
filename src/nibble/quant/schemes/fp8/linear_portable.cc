// The kernels in plain C++, for every processor; see linear_kernels.h.
#include <algorithm>
#include <array>
#include <cstdint>

#include "nibble/quant/schemes/fp8/linear_kernels.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

constexpr int kRows = static_cast<int>(kTileRows);

// All 256 codes as float32.
const std::array<float, 256>& code_values() {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values{};
    for (int code = 0; code < 256; ++code) {
      values[static_cast<std::size_t>(code)] =
          f8e4m3_to_float(static_cast<std::uint8_t>(code));
    }
    return values;
  }();
  return kValues;
}

float load_scale(const Fp8Weights& weights, std::int64_t index) {
  if (weights.scale_kind == ScaleKind::kF32) {
    return static_cast<const float*>(weights.scales)[index];
  }
  const auto bits = static_cast<const std::uint16_t*>(weights.scales)[index];
  return weights.scale_kind == ScaleKind::kF16 ? f16_to_float(bits)
                                               : bf16_to_float(bits);
}

void unpack(const Fp8Weights& weights,
            std::int64_t tile,
            ColumnRange range,
            float* panel) {
  const std::array<float, 256>& values = code_values();
  const std::uint8_t* codes =
      weights.codes + (tile * weights.columns + range.first) * kTileRows;
  std::array<float, kRows> scales{};
  std::int64_t block = -1;
  for (std::int64_t column = range.first; column < range.first + range.count;
       column += 4) {
    if (column / weights.block != block) {
      block = column / weights.block;
      for (int r = 0; r < kRows; ++r) {
        scales[r] = load_scale(weights,
                               (tile * weights.blocks + block) * kTileRows + r);
      }
    }
    for (int c = 0; c < 4; ++c) {
      for (int r = 0; r < kRows; ++r) {
        panel[c * kRows + r] = values[codes[4 * r + c]] * scales[r];
      }
    }
    codes += 4 * kRows;
    panel += 4 * kRows;
  }
}

void multiply(int tiles,
              ColumnRange range,
              const float* panel,
              std::int64_t panel_stride,
              const Fp8Inputs& inputs,
              float* out) {
  for (int t = 0; t < inputs.tokens; ++t) {
    for (int tile = 0; tile < tiles; ++tile) {
      const float* weights = panel + tile * panel_stride;
      const float* values = inputs.values + range.first * inputs.tokens + t;
      std::array<float, kRows> sums{};
      for (std::int64_t i = 0; i < range.count; i += 4) {
        const float x0 = values[0];
        const float x1 = values[inputs.tokens];
        const float x2 = values[2 * inputs.tokens];
        const float x3 = values[3 * inputs.tokens];
// Left rolled, the loop becomes vectors; unrolled first, it stays scalar.
#pragma GCC unroll 1
        for (int r = 0; r < kRows; ++r) {
          sums[r] +=
              (weights[r] * x0 + weights[kRows + r] * x1) +
              (weights[2 * kRows + r] * x2 + weights[3 * kRows + r] * x3);
        }
        weights += 4 * kRows;
        values += 4 * inputs.tokens;
      }
      for (int r = 0; r < kRows; ++r) {
        out[(t * tiles + tile) * kRows + r] += sums[r];
      }
    }
  }
}

}  // namespace

const Fp8Kernels kFp8Portable = {
    .few_tokens = 0,
    .panel_tokens = 8,
    .few = nullptr,
    .unpack = unpack,
    .panel = multiply,
};

}  // namespace nibble::quant
