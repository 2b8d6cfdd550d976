#pragma once

#include <optional>

#include "nibble/quant/core/number_spec.h"
#include "nibble/tensor/tensor.h"

namespace nibble::quant {

// The canonical form in which schemes, formats and algorithms meet: rows
// [0, rows) of a weight or of a tile of its rows, one code a byte.
//   value[r][c] = (code[r][c] - zero[i][j]) * scale[i][j]
// where (i, j) is the element's place in the scale grid of the tile. Tiles of
// kBlock weights start at multiples of block_rows.
struct Quantized {
  NumberSpec spec;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Tensor codes;   // (rows, columns) I8, or F8_E4M3 when spec.floating
  Tensor scales;  // (grid rows, grid columns) spec.scale_dtype
  // As scales: I8 when !spec.symmetric; with spec.real_zero offsets in
  // scale_dtype, and value = code * scale + offset.
  std::optional<Tensor> zeros;
  std::optional<Tensor> order;  // (columns) I32: group of each column
};

}  // namespace nibble::quant
