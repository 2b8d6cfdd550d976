#include "nibble/quant/pipeline/read_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "nibble/base/error.h"
#include "nibble/quant/pipeline/figures.h"

namespace nibble::quant {
namespace {

using container::TensorInfo;

// Elements of T: to (rows, to_stride) columns [0, columns) = transpose of from
// (columns, rows). Squares of 16 keep both sides in the first cache.
template <typename T>
void transpose(const T* from,
               std::int64_t rows,
               std::int64_t columns,
               T* to,
               std::int64_t to_stride) {
  constexpr std::int64_t kSquare = 16;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kSquare) {
    const std::int64_t r1 = std::min(rows, r0 + kSquare);
    for (std::int64_t c0 = 0; c0 < columns; c0 += kSquare) {
      const std::int64_t c1 = std::min(columns, c0 + kSquare);
      for (std::int64_t r = r0; r < r1; ++r) {
        for (std::int64_t c = c0; c < c1; ++c) {
          to[r * to_stride + c] = from[c * rows + r];
        }
      }
    }
  }
}

Tensor read_transposed(const container::CheckpointReader& reader,
                       const TensorInfo& tensor,
                       const MatrixSource& matrix,
                       std::int64_t first,
                       std::int64_t count) {
  const std::size_t element = dtype_bytes(tensor.dtype);
  const std::size_t run = static_cast<std::size_t>(count) * element;
  Tensor tile(tensor.dtype, {count, matrix.columns});
  std::vector<std::byte> block(
      static_cast<std::size_t>(std::min(kTransposeRows, matrix.columns)) *
      run);  // (stored rows, count)
  for (std::int64_t c = 0; c < matrix.columns; c += kTransposeRows) {
    const std::int64_t columns = std::min(kTransposeRows, matrix.columns - c);
    for (std::int64_t i = 0; i < columns; ++i) {
      const std::int64_t at =
          matrix.offset_elements + (c + i) * matrix.stride_elements + first;
      reader.read(tensor,
                  static_cast<std::uint64_t>(at) * element,
                  {block.data() + static_cast<std::size_t>(i) * run, run});
    }
    std::byte* to = tile.view().data() + static_cast<std::size_t>(c) * element;
    if (element == 2) {
      transpose(reinterpret_cast<const std::uint16_t*>(block.data()),
                count,
                columns,
                reinterpret_cast<std::uint16_t*>(to),
                matrix.columns);
    } else {
      transpose(reinterpret_cast<const std::uint32_t*>(block.data()),
                count,
                columns,
                reinterpret_cast<std::uint32_t*>(to),
                matrix.columns);
    }
  }
  return tile;
}

// "row 3, column 5", or "index [1, 3, 5]" of tensors that are no matrices.
std::string position(const Shape& shape, std::int64_t element) {
  std::vector<std::int64_t> index(shape.rank());
  for (std::size_t i = shape.rank(); i-- > 0;) {
    index[i] = element % shape[i];
    element /= shape[i];
  }
  if (index.size() == 2) {
    return fmt::format("row {}, column {}", index[0], index[1]);
  }
  std::string text = "index [";
  for (std::size_t i = 0; i < index.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(index[i]);
  }
  return text + "]";
}

}  // namespace

Tensor read_rows(const container::CheckpointReader& reader,
                 const MatrixSource& matrix,
                 std::int64_t first,
                 std::int64_t count) {
  const TensorInfo& tensor = reader.tensors()[matrix.tensor];
  if (matrix.transposed) {
    return read_transposed(reader, tensor, matrix, first, count);
  }
  Tensor tile(tensor.dtype, {count, matrix.columns});
  const std::int64_t at =
      matrix.offset_elements + first * matrix.stride_elements;
  reader.read(tensor,
              static_cast<std::uint64_t>(at) * dtype_bytes(tensor.dtype),
              tile.view().byte_span());
  return tile;
}

void refuse_non_finite(const container::CheckpointReader& reader,
                       const TensorInfo& tensor) {
  constexpr std::int64_t kChunk = 1 << 18;  // elements
  NonFinite all;
  const std::int64_t elements = tensor.shape.elements();
  for (std::int64_t at = 0; at < elements; at += kChunk) {
    Tensor chunk(tensor.dtype, {std::min(kChunk, elements - at)});
    reader.read(tensor,
                static_cast<std::uint64_t>(at) * dtype_bytes(tensor.dtype),
                chunk.view().byte_span());
    const NonFinite part = find_non_finite(chunk.view());
    all.nan_count += part.nan_count;
    all.inf_count += part.inf_count;
    if (all.first < 0 && part.first >= 0) {
      all.first = at + part.first;
      all.first_is_nan = part.first_is_nan;
    }
  }
  fail_with_hint(ErrorCode::kCorruptData,
                 "download the file again; if it stays so, the weights were "
                 "damaged in training",
                 "tensor {}: found {} at {} ({} NaN and {} infinite values in "
                 "all), expected finite weights",
                 printable(tensor.name),
                 all.first_is_nan ? "NaN" : "infinity",
                 position(tensor.shape, std::max<std::int64_t>(0, all.first)),
                 all.nan_count,
                 all.inf_count);
}

}  // namespace nibble::quant
