#include "nibble/quant/attach/embedding.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "nibble/base/error.h"
#include "nibble/quant/core/registry.h"

namespace nibble::quant {
namespace {

constexpr std::int64_t kTileRows = 1024;  // a multiple of what unpack asks for

// Bytes of a matrix's row.
std::size_t row_bytes(ConstTensorView matrix) {
  return matrix.bytes() / static_cast<std::size_t>(matrix.dim(0));
}

class QuantizedEmbedding final : public model::Embedding {
 public:
  QuantizedEmbedding(const QuantizedCheckpoint& checkpoint,
                     const model::EmbeddingSlot& slot)
      : spec_(checkpoint.spec_of(slot.path)->weight),
        scheme_(scheme_for(spec_)),
        rows_(slot.rows),
        columns_(slot.hidden),
        grid_(scale_grid(spec_, rows_, columns_)),
        packed_(spec_.bits == 4),
        codes_(DType::kU8, {rows_, packed_ ? (columns_ + 1) / 2 : columns_}) {
    for (std::int64_t first = 0; first < rows_; first += kTileRows) {
      const std::int64_t count = std::min(kTileRows, rows_ - first);
      keep(checkpoint.unpack(slot.path, first, count), first);
    }
  }

  void forward(std::span<const std::int32_t> ids,
               TensorView y,
               backend::Stream& /*stream*/) const override {
    Quantized row = empty_row();
    for (std::size_t t = 0; t < ids.size(); ++t) {
      NIBBLE_CHECK(ids[t] >= 0 && ids[t] < rows_,
                   kInvalidArgument,
                   "token id: found {}, expected 0 to {}",
                   ids[t],
                   rows_ - 1);
      fill(row, ids[t]);
      scheme_.decode(row, y.rows(static_cast<std::int64_t>(t), 1));
    }
  }

  [[nodiscard]] std::size_t resident_bytes() const override {
    return codes_.bytes() + scales_.bytes() + (zeros_ ? zeros_->bytes() : 0);
  }

 private:
  // Takes over a tile of the table.
  void keep(Quantized tile, std::int64_t first) {
    const auto columns = static_cast<std::size_t>(columns_);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const std::byte* from =
          std::as_const(tile.codes).view().rows(r, 1).data();
      std::byte* to = codes_.view().rows(first + r, 1).data();
      if (!packed_) {
        std::memcpy(to, from, columns);
        continue;
      }
      std::memset(to, 0, row_bytes(codes_.view()));
      for (std::size_t c = 0; c < columns; ++c) {
        to[c / 2] |= (from[c] & std::byte{0xF}) << (c % 2 * 4);
      }
    }
    if (scales_.empty()) {
      scales_ = Tensor(tile.scales.dtype(), {grid_.rows, grid_.columns});
      if (tile.zeros) {
        zeros_ = Tensor(tile.zeros->dtype(), {grid_.rows, grid_.columns});
      }
      order_ = std::move(tile.order);  // of columns, alike in every tile
    }
    copy_rows(tile.scales, scales_, first / grid_.rows_per_scale);
    if (zeros_) {
      copy_rows(*tile.zeros, *zeros_, first / grid_.rows_per_scale);
    }
  }

  static void copy_rows(const Tensor& from, Tensor& to, std::int64_t first) {
    const ConstTensorView rows = from.view();
    std::memcpy(
        to.view().rows(first, rows.dim(0)).data(), rows.data(), rows.bytes());
  }

  [[nodiscard]] Quantized empty_row() const {
    Quantized row;
    row.spec = spec_;
    row.rows = 1;
    row.columns = columns_;
    row.codes =
        Tensor(spec_.floating ? DType::kF8E4M3 : DType::kI8, {1, columns_});
    row.scales = Tensor(scales_.dtype(), {1, grid_.columns});
    if (zeros_) {
      row.zeros = Tensor(zeros_->dtype(), {1, grid_.columns});
    }
    if (order_) {
      row.order = Tensor::copy_of(order_->view());
    }
    return row;
  }

  void fill(Quantized& row, std::int32_t id) const {
    const std::byte* from = codes_.view().rows(id, 1).data();
    std::byte* to = row.codes.view().data();
    const auto columns = static_cast<std::size_t>(columns_);
    if (packed_) {
      for (std::size_t c = 0; c < columns; ++c) {
        const auto code =
            std::to_integer<int>(from[c / 2] >> (c % 2 * 4)) & 0xF;
        to[c] = static_cast<std::byte>((code ^ 8) - 8);  // its sign
      }
    } else {
      std::memcpy(to, from, columns);
    }
    const std::int64_t scale_row = id / grid_.rows_per_scale;
    const auto copy = [&](const Tensor& all, Tensor& one) {
      const ConstTensorView part = all.view().rows(scale_row, 1);
      std::memcpy(one.view().data(), part.data(), part.bytes());
    };
    copy(scales_, row.scales);
    if (zeros_) {
      copy(*zeros_, *row.zeros);
    }
  }

  NumberSpec spec_;
  const Scheme& scheme_;
  std::int64_t rows_;
  std::int64_t columns_;
  ScaleGrid grid_;
  bool packed_;
  Tensor codes_;   // (vocabulary, hidden), or (vocabulary, hidden / 2)
  Tensor scales_;  // (grid rows, grid columns)
  std::optional<Tensor> zeros_;
  std::optional<Tensor> order_;
};

}  // namespace

std::unique_ptr<model::Embedding> make_quantized_embedding(
    const QuantizedCheckpoint& checkpoint, const model::EmbeddingSlot& slot) {
  const Shape shape = checkpoint.weight_shape(slot.path);
  NIBBLE_CHECK((shape == Shape{slot.rows, slot.hidden}),
               kCorruptData,
               "module {}: found a table of {}, expected ({}, {})",
               slot.path,
               to_string(shape),
               slot.rows,
               slot.hidden);
  return std::make_unique<QuantizedEmbedding>(checkpoint, slot);
}

}  // namespace nibble::quant
