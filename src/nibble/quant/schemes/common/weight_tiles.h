#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "nibble/backend/backend.h"
#include "nibble/base/function_ref.h"
#include "nibble/quant/core/scheme.h"
#include "nibble/quant/schemes/common/kernel_types.h"

namespace nibble::quant {

// Fetches a weight from its source in slabs of rows (a multiple of 16 and of
// block_rows, about 128) and calls body(slab, first_row_of_slab, tile) for
// every tile of 16 rows; tiles of a slab run in parallel. Each slab is checked
// first: kCorruptData when its shapes or dtypes contradict spec, when an
// integer code or zero point does not fit into spec.bits, when a scale is not
// finite, when a floating code is NaN.
void for_each_tile(const NumberSpec& spec,
                   std::int64_t rows,
                   std::int64_t columns,
                   const RowSource& codes,
                   FunctionRef<void(const Quantized& slab,
                                    std::int64_t first_row,
                                    std::int64_t tile)> body);

// Scales in the order in which kernels read them, (tiles, scales a row, 16),
// in the dtype of the checkpoint. Rows past the end have scale 0.
class ScaleTiles {
 public:
  // kUnsupported for a scale_dtype other than F32, F16 and BF16.
  ScaleTiles(const NumberSpec& spec,
             std::int64_t rows,
             std::int64_t columns,
             const backend::Backend& backend);

  // Copies the scales of one tile out of a slab. Different tiles may be filled
  // from different threads.
  void fill(const Quantized& slab, std::int64_t first_row, std::int64_t tile);

  [[nodiscard]] ScaleKind kind() const { return kind_; }

  [[nodiscard]] const void* data() const { return scales_.view().data(); }

  [[nodiscard]] std::int64_t per_row() const { return grid_.columns; }

  [[nodiscard]] std::size_t bytes() const { return scales_.bytes(); }

 private:
  std::int64_t rows_;
  ScaleGrid grid_;
  ScaleKind kind_;
  Tensor scales_;
};

// The bias as float32, empty for none; kCorruptData unless it has `rows`
// elements.
[[nodiscard]] std::vector<float> float_bias(const std::optional<Tensor>& bias,
                                            std::int64_t rows);

// The value of a stored static input scale; kCorruptData unless input_scale
// is one finite number above zero, and present exactly for static inputs.
[[nodiscard]] std::optional<float> static_input_scale(
    const std::optional<NumberSpec>& input,
    const std::optional<Tensor>& input_scale);

// Backend memory of this many bytes, in huge pages where the system has them:
// a layer is read from end to end for every token.
[[nodiscard]] Tensor allocate_weights(const backend::Backend& backend,
                                      std::int64_t bytes);

}  // namespace nibble::quant
