#include "nibble/quant/schemes/fp8/linear.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/quant/schemes/common/fp8_grid.h"
#include "nibble/quant/schemes/common/tiled_linear.h"
#include "nibble/quant/schemes/common/weight_tiles.h"
#include "nibble/quant/schemes/fp8/linear_input.h"
#include "nibble/quant/schemes/fp8/linear_kernels.h"

namespace nibble::quant {
namespace {

// Columns of a panel: 32 rows x 1024 x 4 bytes = 128 KiB stay in the second
// level cache while all tokens pass.
constexpr std::int64_t kPanelColumns = 1024;
constexpr std::int64_t kColumnMultiple = 4;

const Fp8Kernels& kernels_for(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) {
    return kFp8Avx512;
  }
  if (isa == Isa::kAvx2) {
    return kFp8Avx2;
  }
#endif
  NIBBLE_ASSERT(isa == Isa::kPortable);
  return kFp8Portable;
}

void check_spec(const LayerSpec& spec,
                std::int64_t rows,
                std::int64_t columns) {
  const NumberSpec& weight = spec.weight;
  const bool group_ok = weight.grain != Grain::kGroup || weight.group > 0;
  const bool block_ok = weight.grain != Grain::kBlock ||
                        (weight.block_rows > 0 && weight.block_columns > 0);
  NIBBLE_CHECK(weight.floating && weight.bits == 8 && weight.symmetric &&
                   weight.grain != Grain::kToken && group_ok && block_ok,
               kUnsupported,
               "fp8 weights: found {}, expected fp8",
               describe(spec));
  NIBBLE_CHECK(rows > 0 && columns > 0,
               kUnsupported,
               "fp8 weights: found {} rows and {} columns, expected some",
               rows,
               columns);
  const ScaleGrid grid = scale_grid(weight, rows, columns);
  NIBBLE_CHECK(
      grid.columns == 1 || grid.columns_per_scale % kColumnMultiple == 0,
      kUnsupported,
      "fp8 weights: found a scale for {} columns, expected a multiple of {}",
      grid.columns_per_scale,
      kColumnMultiple);
  if (!spec.input) {
    return;
  }
  const NumberSpec& input = *spec.input;
  const bool grain_ok = input.grain == Grain::kToken ||
                        input.grain == Grain::kTensor ||
                        (input.grain == Grain::kGroup && input.group > 0);
  NIBBLE_CHECK(input.floating && input.bits == 8 && input.symmetric && grain_ok,
               kUnsupported,
               "inputs of fp8 weights: found {}, expected fp8 a token, a "
               "group of columns or a tensor",
               describe(spec));
}

class Fp8Linear final : public TiledLinear {
 public:
  Fp8Linear(const LayerSpec& spec,
            std::int64_t rows,
            std::int64_t columns,
            const RowSource& codes,
            const std::optional<Tensor>& bias,
            const std::optional<Tensor>& input_scale,
            const backend::Backend& backend,
            Isa isa);

  [[nodiscard]] std::size_t resident_bytes() const override {
    return codes_.bytes() + scales_.bytes() + bias_bytes();
  }

 private:
  void multiply(std::span<const float> x,
                std::int64_t tokens,
                float* y) const override;
  void fill_tile(const Quantized& slab,
                 std::int64_t first_row,
                 std::int64_t tile);
  [[nodiscard]] Fp8Weights weights() const;
  void multiply_panels(const RoundedInputs& inputs,
                       std::int64_t tile,
                       int tile_count,
                       std::span<float> out) const;

  InputRounding rounding_;
  ScaleGrid grid_;
  const Fp8Kernels* kernels_;
  Tensor codes_;  // (tiles, padded columns / 4, 16, 4) bytes
  ScaleTiles scales_;
};

Fp8Linear::Fp8Linear(const LayerSpec& spec,
                     std::int64_t rows,
                     std::int64_t columns,
                     const RowSource& codes,
                     const std::optional<Tensor>& bias,
                     const std::optional<Tensor>& input_scale,
                     const backend::Backend& backend,
                     Isa isa)
    : TiledLinear(rows,
                  columns,
                  bias,
                  describe(spec) + " " + std::string(isa_name(isa))),
      rounding_{&input_loops(isa),
                spec.input,
                static_input_scale(spec.input, input_scale),
                columns,
                round_up(columns, kColumnMultiple)},
      grid_(scale_grid(spec.weight, rows, columns)),
      kernels_(&kernels_for(isa)),
      codes_(allocate_weights(backend, tiles() * kTileRows * rounding_.padded)),
      scales_(spec.weight, rows, columns, backend) {
  for_each_tile(
      spec.weight,
      rows,
      columns,
      codes,
      [&](const Quantized& slab, std::int64_t first_row, std::int64_t tile) {
        fill_tile(slab, first_row, tile);
        scales_.fill(slab, first_row, tile);
      });
}

void Fp8Linear::fill_tile(const Quantized& slab,
                          std::int64_t first_row,
                          std::int64_t tile) {
  const auto from = std::as_const(slab.codes).view().raw<const std::uint8_t>();
  auto* to = codes_.view().raw<std::uint8_t>().data() +
             tile * kTileRows * rounding_.padded;
  for (std::int64_t r = 0; r < kTileRows; ++r) {
    const std::int64_t row = tile * kTileRows + r;
    const std::uint8_t* codes =
        row < rows() ? from.data() + (row - first_row) * columns() : nullptr;
    for (std::int64_t column = 0; column < rounding_.padded; ++column) {
      const std::int64_t run = column / kColumnMultiple;
      to[run * 64 + r * kColumnMultiple + column % kColumnMultiple] =
          codes != nullptr && column < columns() ? codes[column]
                                                 : std::uint8_t{0};
    }
  }
}

Fp8Weights Fp8Linear::weights() const {
  return {codes_.view().raw<const std::uint8_t>().data(),
          scales_.data(),
          scales_.kind(),
          rounding_.padded,
          round_up(grid_.columns_per_scale, kColumnMultiple),
          grid_.columns};
}

void Fp8Linear::multiply(std::span<const float> x,
                         std::int64_t tokens,
                         float* y) const {
  const bool few = tokens <= kernels_->few_tokens;
  const RoundedInputs inputs(
      rounding_,
      x,
      tokens,
      few ? kernels_->few_tokens : kernels_->panel_tokens,
      few ? kFp8HalfBias : 1.0F);
  if (few) {
    const Fp8Weights layer = weights();
    each_tile(tokens, y, [&](std::int64_t tile, std::span<float> out) {
      kernels_->few(layer, tile, inputs[0], out.data());
    });
  } else {
    each_pair(
        tokens, y, [&](std::int64_t first, int count, std::span<float> out) {
          multiply_panels(inputs, first, count, out);
        });
  }
}

void Fp8Linear::multiply_panels(const RoundedInputs& inputs,
                                std::int64_t tile,
                                int tile_count,
                                std::span<float> out) const {
  const Fp8Weights layer = weights();
  const std::int64_t columns = layer.columns;
  const std::int64_t panel_stride =
      std::min(kPanelColumns, columns) * kTileRows;
  const auto panel = std::make_unique_for_overwrite<float[]>(
      static_cast<std::size_t>(panel_stride * tile_count));
  for (std::int64_t first = 0; first < columns; first += kPanelColumns) {
    const ColumnRange range{first, std::min(kPanelColumns, columns - first)};
    for (int i = 0; i < tile_count; ++i) {
      kernels_->unpack(layer, tile + i, range, panel.get() + i * panel_stride);
    }
    float* at = out.data();
    for (std::int64_t group = 0; group < inputs.groups(); ++group) {
      const Fp8Inputs tokens = inputs[group];
      kernels_->panel(tile_count, range, panel.get(), panel_stride, tokens, at);
      at += tokens.tokens * tile_count * kTileRows;
    }
  }
}

}  // namespace

std::unique_ptr<model::Linear> make_fp8_linear(
    const LayerSpec& spec,
    std::int64_t rows,
    std::int64_t columns,
    const RowSource& codes,
    const std::optional<Tensor>& bias,
    const std::optional<Tensor>& input_scale,
    backend::Backend& backend,
    Isa isa) {
  check_spec(spec, rows, columns);
  return std::make_unique<Fp8Linear>(
      spec, rows, columns, codes, bias, input_scale, backend, isa);
}

}  // namespace nibble::quant
