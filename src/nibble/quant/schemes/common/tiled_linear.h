#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nibble/base/function_ref.h"
#include "nibble/model/linear.h"
#include "nibble/tensor/tensor.h"

namespace nibble::quant {

// What layers have in common whose weights lie in tiles of kTileRows rows: the
// walk over tokens and tiles, the bias, and who they are. A scheme adds its
// codes and what its kernels make of one tile.
class TiledLinear : public model::Linear {
 public:
  void forward(ConstTensorView x,
               TensorView y,
               backend::Stream& stream) const final;

  [[nodiscard]] std::string description() const final { return description_; }

 protected:
  // bias: (rows), or none; kCorruptData for another size.
  TiledLinear(std::int64_t rows,
              std::int64_t columns,
              const std::optional<Tensor>& bias,
              std::string description);

  // y (tokens, rows) = x (tokens, columns) W^T + bias, for so few tokens that
  // what is made of x stays small. Computes by each_tile or each_pair.
  virtual void multiply(std::span<const float> x,
                        std::int64_t tokens,
                        float* y) const = 0;

  // Has kernel fill out (tokens, kTileRows) for each tile, in parallel, and
  // puts that and the bias into y.
  void each_tile(
      std::int64_t tokens,
      float* y,
      FunctionRef<void(std::int64_t tile, std::span<float> out)> kernel) const;

  // The same for count tiles from `first` on, two or a last one: out is
  // (tokens, count * kTileRows).
  void each_pair(
      std::int64_t tokens,
      float* y,
      FunctionRef<void(std::int64_t first, int count, std::span<float> out)>
          kernel) const;

  [[nodiscard]] std::int64_t rows() const { return rows_; }

  [[nodiscard]] std::int64_t columns() const { return columns_; }

  [[nodiscard]] std::int64_t tiles() const;

  [[nodiscard]] std::size_t bias_bytes() const {
    return bias_.size() * sizeof(float);
  }

 private:
  void store(std::span<const float> out,
             std::int64_t stride,
             std::int64_t first_row,
             std::int64_t tokens,
             float* y) const;

  std::int64_t rows_;
  std::int64_t columns_;
  std::vector<float> bias_;  // (rows) or empty
  std::string description_;
};

}  // namespace nibble::quant
