#include "nibble/quant/schemes/integer/linear.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/quant/schemes/common/fp8_grid.h"
#include "nibble/quant/schemes/common/tiled_linear.h"
#include "nibble/quant/schemes/common/weight_tiles.h"
#include "nibble/quant/schemes/integer/linear_input.h"
#include "nibble/quant/schemes/integer/linear_kernels.h"

namespace nibble::quant {
namespace {

constexpr std::int64_t kColumnMultiple = 8;
// Most columns whose products fit into 32 bits together.
constexpr std::int64_t kLargestBlock = 128;
// Columns of a panel: 32 rows x 2048 x 2 bytes = 128 KiB stay in the second
// level cache while all tokens pass.
constexpr std::int64_t kPanelColumns = 2048;

const IntegerKernels& kernels_for(Isa isa,
                                  const std::optional<NumberSpec>& input) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) {
    return input && !input->floating ? kIntegerAvx512Int8 : kIntegerAvx512;
  }
  if (isa == Isa::kAvx2) {
    return kIntegerAvx2;
  }
#endif
  NIBBLE_ASSERT(isa == Isa::kPortable);
  return kIntegerPortable;
}

// Columns whose integer products are summed before a scale comes in: all that
// share the scale, or the largest equal part of them that fits.
std::int64_t block_of(std::int64_t columns_per_scale, std::int64_t columns) {
  if (columns_per_scale >= columns) {
    return kLargestBlock;
  }
  for (std::int64_t block = kLargestBlock; block > 0;
       block -= kColumnMultiple) {
    if (columns_per_scale % block == 0) {
      return block;
    }
  }
  fail_with_hint(ErrorCode::kUnsupported,
                 "quantize with a group of 32, 64, 128 or 256 columns, or "
                 "whole rows",
                 "integer weights: found groups of {} columns, expected a "
                 "multiple of {}",
                 columns_per_scale,
                 kColumnMultiple);
}

void check_spec(const LayerSpec& spec,
                std::int64_t rows,
                std::int64_t columns) {
  const NumberSpec& weight = spec.weight;
  const bool group_ok = weight.grain != Grain::kGroup || weight.group > 0;
  const bool block_ok = weight.grain != Grain::kBlock ||
                        (weight.block_rows > 0 && weight.block_columns > 0);
  NIBBLE_CHECK(!weight.floating && (weight.bits == 4 || weight.bits == 8) &&
                   weight.grain != Grain::kToken && group_ok && block_ok,
               kUnsupported,
               "integer weights: found {}, expected int4 or int8",
               describe(spec));
  NIBBLE_CHECK(rows > 0 && columns > 0,
               kUnsupported,
               "integer weights: found {} rows and {} columns, expected some",
               rows,
               columns);
  if (spec.input) {
    check_integer_input(*spec.input);
  }
}

class IntegerLinear final : public TiledLinear {
 public:
  IntegerLinear(const LayerSpec& spec,
                std::int64_t rows,
                std::int64_t columns,
                const RowSource& codes,
                const std::optional<Tensor>& bias,
                const std::optional<Tensor>& input_scale,
                const backend::Backend& backend,
                Isa isa);

  [[nodiscard]] std::size_t resident_bytes() const override {
    return codes_.bytes() + scales_.bytes() + (zeros_ ? zeros_->bytes() : 0) +
           bias_bytes();
  }

 private:
  void multiply(std::span<const float> x,
                std::int64_t tokens,
                float* y) const override;
  void fill_tile(const Quantized& slab,
                 std::int64_t first_row,
                 std::int64_t tile);
  void fill_zeros(const Quantized& slab,
                  std::int64_t first_row,
                  std::int64_t tile);
  [[nodiscard]] IntegerWeights weights() const;
  void multiply_panels(const CodedInputs& inputs,
                       std::int64_t tile,
                       int tile_count,
                       std::span<float> out) const;

  NumberSpec spec_;
  ScaleGrid grid_;
  InputCoding coding_;
  std::int64_t blocks_per_scale_;
  const IntegerKernels* kernels_;
  Tensor codes_;  // (tiles, padded columns * 16 * bits / 8) bytes
  ScaleTiles scales_;
  std::optional<Tensor> zeros_;  // (tiles, scales a row, 16) I8
};

IntegerLinear::IntegerLinear(const LayerSpec& spec,
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
      spec_(spec.weight),
      grid_(scale_grid(spec.weight, rows, columns)),
      kernels_(&kernels_for(isa, spec.input)),
      scales_(spec.weight, rows, columns, backend) {
  coding_.loops = &input_loops(isa);
  coding_.spec = spec.input;
  coding_.static_scale = static_input_scale(spec.input, input_scale);
  coding_.columns = columns;
  coding_.padded = round_up(columns, kColumnMultiple);
  coding_.block = block_of(grid_.columns_per_scale, columns);
  coding_.blocks = divide_up(columns, coding_.block);
  coding_.bits = kernels_->input_bits;
  coding_.weight_bits = spec_.bits;
  blocks_per_scale_ = grid_.columns == 1
                          ? coding_.blocks
                          : grid_.columns_per_scale / coding_.block;
  codes_ = allocate_weights(
      backend, tiles() * (coding_.padded * kTileRows * spec_.bits / 8));
  if (!spec_.symmetric) {
    zeros_ = backend.allocate(DType::kI8, {tiles(), grid_.columns, kTileRows});
  }
  for_each_tile(
      spec_,
      rows,
      columns,
      codes,
      [&](const Quantized& slab, std::int64_t first_row, std::int64_t tile) {
        fill_tile(slab, first_row, tile);
        scales_.fill(slab, first_row, tile);
        if (zeros_) {
          fill_zeros(slab, first_row, tile);
        }
      });
}

void IntegerLinear::fill_tile(const Quantized& slab,
                              std::int64_t first_row,
                              std::int64_t tile) {
  const std::int64_t tile_bytes = coding_.padded * kTileRows * spec_.bits / 8;
  const std::int64_t run_columns = 32 / spec_.bits;
  const int offset = spec_.bits == 4 ? 8 : 0;
  const auto mask = static_cast<std::uint32_t>((1 << spec_.bits) - 1);
  const auto from = std::as_const(slab.codes).view().as<std::int8_t>();
  auto* to = codes_.view().raw<std::uint8_t>().data() + tile * tile_bytes;
  const std::int64_t runs = coding_.padded / run_columns;
  for (std::int64_t r = 0; r < kTileRows; ++r) {
    const std::int64_t row = tile * kTileRows + r;
    const std::int8_t* codes =
        row < rows() ? from.data() + (row - first_row) * coding_.columns
                     : nullptr;
    for (std::int64_t run = 0; run < runs; ++run) {
      std::uint32_t dword = 0;
      for (std::int64_t i = 0; i < run_columns; ++i) {
        const std::int64_t column = run * run_columns + i;
        const int code = codes != nullptr && column < coding_.columns
                             ? codes[column] + offset
                             : 0;
        const std::int64_t shift = 16 * (i % 2) + spec_.bits * (i / 2);
        dword |= (static_cast<std::uint32_t>(code) & mask) << shift;
      }
      std::uint8_t* at = to + run * 64 + r * 4;
      for (int byte = 0; byte < 4; ++byte) {
        at[byte] = static_cast<std::uint8_t>(dword >> (8 * byte));
      }
    }
  }
}

void IntegerLinear::fill_zeros(const Quantized& slab,
                               std::int64_t first_row,
                               std::int64_t tile) {
  const int offset = spec_.bits == 4 ? 8 : 0;
  const auto from = std::as_const(*slab.zeros).view().as<std::int8_t>();
  auto* to = zeros_->view().as<std::int8_t>().data() +
             tile * grid_.columns * kTileRows;
  for (std::int64_t column = 0; column < grid_.columns; ++column) {
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      const std::int64_t row = tile * kTileRows + r;
      const std::int64_t grid_row =
          grid_.rows == 1 ? 0 : (row - first_row) / grid_.rows_per_scale;
      const int zero =
          row < rows() ? from[grid_row * grid_.columns + column] + offset : 0;
      *to++ = static_cast<std::int8_t>(zero);
    }
  }
}

IntegerWeights IntegerLinear::weights() const {
  return {codes_.view().raw<const std::uint8_t>().data(),
          scales_.data(),
          zeros_ ? zeros_->view().as<const std::int8_t>().data() : nullptr,
          scales_.kind(),
          spec_.bits,
          coding_.padded,
          coding_.padded * kTileRows * spec_.bits / 8,
          coding_.block,
          coding_.blocks,
          blocks_per_scale_,
          grid_.columns};
}

void IntegerLinear::multiply(std::span<const float> x,
                             std::int64_t tokens,
                             float* y) const {
  const bool few = tokens <= kernels_->few_tokens;
  const CodedInputs inputs(
      coding_, x, tokens, few ? kernels_->few_tokens : kernels_->panel_tokens);
  if (few) {
    const IntegerWeights layer = weights();
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

void IntegerLinear::multiply_panels(const CodedInputs& inputs,
                                    std::int64_t tile,
                                    int tile_count,
                                    std::span<float> out) const {
  const IntegerWeights layer = weights();
  const std::int64_t blocks_at_once =
      std::max<std::int64_t>(1, kPanelColumns / layer.block);
  const std::int64_t panel_bytes =
      std::min(blocks_at_once * layer.block, layer.columns) * kTileRows *
      kernels_->input_bits / 8;
  const auto panel = std::make_unique_for_overwrite<std::byte[]>(
      static_cast<std::size_t>(panel_bytes * tile_count));
  for (std::int64_t first = 0; first < layer.blocks; first += blocks_at_once) {
    const BlockRange range{first,
                           std::min(blocks_at_once, layer.blocks - first)};
    for (int i = 0; i < tile_count; ++i) {
      kernels_->unpack(layer, tile + i, range, panel.get() + i * panel_bytes);
    }
    float* at = out.data();
    for (std::int64_t group = 0; group < inputs.groups(); ++group) {
      const IntegerInputs tokens = inputs[group];
      kernels_->panel(
          layer, tile, tile_count, range, panel.get(), panel_bytes, tokens, at);
      at += tokens.tokens * tile_count * kTileRows;
    }
  }
}

}  // namespace

std::unique_ptr<model::Linear> make_integer_linear(
    const LayerSpec& spec,
    std::int64_t rows,
    std::int64_t columns,
    const RowSource& codes,
    const std::optional<Tensor>& bias,
    const std::optional<Tensor>& input_scale,
    backend::Backend& backend,
    Isa isa) {
  check_spec(spec, rows, columns);
  return std::make_unique<IntegerLinear>(
      spec, rows, columns, codes, bias, input_scale, backend, isa);
}

}  // namespace nibble::quant
