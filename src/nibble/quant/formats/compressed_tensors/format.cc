#include "nibble/quant/formats/compressed_tensors/format.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/quant/formats/compressed_tensors/bits/bits.h"
#include "nibble/quant/formats/compressed_tensors/checkpoint.h"
#include "nibble/quant/formats/compressed_tensors/config/config_entry.h"
#include "nibble/quant/formats/compressed_tensors/config/declaration.h"
#include "nibble/quant/formats/compressed_tensors/config/layout.h"

namespace nibble::quant {
namespace {

using compressed_tensors::Part;
using compressed_tensors::Storage;

// Writes the tensors of one tile.
class TilePacker {
 public:
  TilePacker(std::string_view module,
             const LayerSpec& spec,
             std::int64_t rows,
             std::int64_t first_row,
             const Quantized& tile,
             const Format::Sink& sink)
      : module_(module),
        weight_(spec.weight),
        storage_(compressed_tensors::storage_of(
            compressed_tensors::format_word(spec))),
        rows_(rows),
        first_(first_row),
        tile_(tile),
        sink_(sink) {}

  void pack() const {
    pack_codes();
    // One scale a tensor belongs to all tiles: the first brings it.
    const bool whole = weight_.grain == Grain::kTensor;
    const ScaleGrid grid = scale_grid(weight_, rows_, tile_.columns);
    if (!whole || first_ == 0) {
      const std::int64_t row = whole ? 0 : first_ / grid.rows_per_scale;
      emit("weight_scale", row, tile_.scales.view());
      if (storage_ == Storage::kPlain && tile_.zeros) {
        emit("weight_zero_point", row, tile_.zeros->view());
      }
    }
    if (storage_ == Storage::kPacked) {
      if (tile_.zeros) {
        pack_zeros();
      }
      if (first_ == 0) {
        const std::array<std::int64_t, 2> shape = {rows_, tile_.columns};
        sink_(fmt::format("{}.weight_shape", module_),
              0,
              std::as_bytes(std::span(shape)));
      }
    }
  }

 private:
  // A view whose first row is `row` of the whole tensor.
  void emit(std::string_view part,
            std::int64_t row,
            ConstTensorView view) const {
    const std::size_t row_bytes =
        view.bytes() / static_cast<std::size_t>(view.dim(0));
    sink_(fmt::format("{}.{}", module_, part),
          static_cast<std::uint64_t>(row) * row_bytes,
          view.byte_span());
  }

  void pack_codes() const {
    if (storage_ == Storage::kPlain) {
      emit("weight", first_, tile_.codes.view());
      return;
    }
    const auto codes = tile_.codes.view().as<std::int8_t>();
    const std::int64_t row_words =
        compressed_tensors::words_for(tile_.columns, weight_.bits);
    Tensor words(DType::kI32, {tile_.rows, row_words});
    // Rows that fill their words follow each other like one.
    const bool full = row_words * 32 == tile_.columns * weight_.bits;
    const std::int64_t rows = full ? tile_.rows : 1;
    const auto step = static_cast<std::size_t>(rows * tile_.columns);
    for (std::int64_t row = 0; row < tile_.rows; row += rows) {
      compressed_tensors::pack_row(
          codes.subspan(static_cast<std::size_t>(row * tile_.columns), step),
          weight_.bits,
          words.view().rows(row, rows).byte_span());
    }
    emit("weight_packed", first_, std::as_const(words).view());
  }

  void pack_zeros() const {
    const std::int64_t groups = tile_.zeros->shape()[1];
    Tensor words(
        DType::kI32,
        {compressed_tensors::words_for(tile_.rows, weight_.bits), groups});
    compressed_tensors::pack_columns(tile_.zeros->view().as<std::int8_t>(),
                                     groups,
                                     weight_.bits,
                                     words.view().byte_span());
    emit("weight_zero_point",
         first_ / (32 / weight_.bits),
         std::as_const(words).view());
  }

  std::string_view module_;
  const NumberSpec& weight_;
  Storage storage_;
  std::int64_t rows_;
  std::int64_t first_;
  const Quantized& tile_;
  const Format::Sink& sink_;
};

class CompressedTensorsFormat final : public Format {
 public:
  std::string_view name() const override { return "compressed_tensors"; }

  std::unique_ptr<QuantizedCheckpoint> open(
      const nlohmann::json& config,
      const container::CheckpointReader& reader) const override {
    const nlohmann::json* entry = compressed_tensors::declaration_entry(config);
    return entry == nullptr
               ? nullptr
               : compressed_tensors::open_checkpoint(*entry, reader);
  }

  void check(const LayerSpec& spec,
             std::int64_t rows,
             std::int64_t columns) const override {
    compressed_tensors::check_layer(spec, rows, columns);
  }

  std::vector<container::TensorInfo> plan(std::string_view module,
                                          const LayerSpec& spec,
                                          std::int64_t rows,
                                          std::int64_t columns) const override {
    check(spec, rows, columns);
    std::vector<container::TensorInfo> tensors;
    const Storage storage =
        compressed_tensors::storage_of(compressed_tensors::format_word(spec));
    for (const Part& part :
         compressed_tensors::parts_of(spec, storage, rows, columns)) {
      container::TensorInfo tensor;
      tensor.name = fmt::format("{}.{}", module, part.suffix);
      tensor.dtype = part.dtype;
      tensor.shape = part.shape;
      tensor.bytes = static_cast<std::uint64_t>(part.shape.elements()) *
                     dtype_bytes(part.dtype);
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

  void pack(std::string_view module,
            const LayerSpec& spec,
            std::int64_t rows,
            std::int64_t first_row,
            const Quantized& tile,
            const Sink& sink) const override {
    NIBBLE_CHECK(tile.spec == spec.weight && tile.rows > 0 && !tile.order &&
                     first_row % row_multiple() == 0 && first_row >= 0 &&
                     (spec.weight.grain != Grain::kBlock ||
                      first_row % spec.weight.block_rows == 0) &&
                     first_row + tile.rows <= rows &&
                     tile.zeros.has_value() != spec.weight.symmetric,
                 kInternal,
                 "module {}: found a tile that does not belong to it",
                 module);
    TilePacker(module, spec, rows, first_row, tile, sink).pack();
  }

  // A word of zero points belongs to 8 rows of 4 bits, or 4 of 8.
  std::int64_t row_multiple() const override { return 8; }

  std::string_view config_key() const override { return "quantization_config"; }

  nlohmann::json config_entry(
      std::span<const LayerDecision> layers) const override {
    return compressed_tensors::make_config_entry(layers);
  }
};

}  // namespace

const Format& compressed_tensors_format() {
  static const CompressedTensorsFormat kFormat;
  return kFormat;
}

}  // namespace nibble::quant
