#include "nibble/quant/pipeline/matrix/read_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "nibble/base/error.h"
#include "nibble/quant/pipeline/matrix/figures.h"
#include "nibble/quant/pipeline/matrix/transpose.h"

namespace nibble::quant {
namespace {

using container::TensorInfo;

// Reads rows [first, first + rows) of `count` stored rows from `stored` on, a
// stride apart.
void read_stored(const container::CheckpointReader& reader,
                 const MatrixSource& matrix,
                 std::int64_t first,
                 std::size_t rows,
                 std::size_t stored,
                 std::size_t count,
                 std::size_t stride,
                 std::byte* to) {
  const TensorInfo& tensor = reader.tensors()[matrix.tensor];
  const std::size_t element = dtype_bytes(tensor.dtype);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t at =
        matrix.offset_elements +
        static_cast<std::int64_t>(stored + i) * matrix.stride_elements + first;
    reader.read(tensor,
                static_cast<std::uint64_t>(at) * element,
                {to + i * stride * element, rows * element});
  }
}

// transpose() of elements of 2 or 4 bytes; places and strides in elements.
void transpose_elements(const std::byte* from,
                        std::size_t from_stride,
                        std::size_t rows,
                        std::size_t columns,
                        std::byte* to,
                        std::size_t to_stride,
                        std::size_t element) {
  if (element == sizeof(std::uint16_t)) {
    transpose(reinterpret_cast<const std::uint16_t*>(from),
              from_stride,
              rows,
              columns,
              reinterpret_cast<std::uint16_t*>(to),
              to_stride);
  } else {
    transpose(reinterpret_cast<const std::uint32_t*>(from),
              from_stride,
              rows,
              columns,
              reinterpret_cast<std::uint32_t*>(to),
              to_stride);
  }
}

void read_transposed(const container::CheckpointReader& reader,
                     const TensorInfo& tensor,
                     const MatrixSource& matrix,
                     std::int64_t first,
                     std::span<std::byte> out,
                     std::vector<std::byte>& block) {
  const std::size_t element = dtype_bytes(tensor.dtype);
  const auto columns = static_cast<std::size_t>(matrix.columns);
  const std::size_t rows = out.size() / element / columns;
  const std::size_t stride = padded_stride(rows, element);
  const auto most = static_cast<std::size_t>(kTransposeRows);
  block.resize(std::min(most, columns) * stride * element);
  for (std::size_t c = 0; c < columns; c += most) {
    const std::size_t count = std::min(most, columns - c);
    read_stored(reader, matrix, first, rows, c, count, stride, block.data());
    transpose_elements(block.data(),
                       stride,
                       rows,
                       count,
                       out.data() + c * element,
                       columns,
                       element);
  }
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
    text += i == 0 ? "" : ", ";
    text += std::to_string(index[i]);
  }
  text += "]";
  return text;
}

}  // namespace

void read_rows(const container::CheckpointReader& reader,
               const MatrixSource& matrix,
               std::int64_t first,
               std::span<std::byte> out,
               std::vector<std::byte>& block) {
  const TensorInfo& tensor = reader.tensors()[matrix.tensor];
  if (matrix.transposed) {
    read_transposed(reader, tensor, matrix, first, out, block);
    return;
  }
  const std::int64_t at =
      matrix.offset_elements + first * matrix.stride_elements;
  reader.read(
      tensor, static_cast<std::uint64_t>(at) * dtype_bytes(tensor.dtype), out);
}

std::size_t StagedRows::bytes(const MatrixSource& matrix,
                              DType dtype,
                              std::int64_t rows) {
  const std::size_t element = dtype_bytes(dtype);
  return static_cast<std::size_t>(matrix.columns) *
         padded_stride(static_cast<std::size_t>(rows), element) * element;
}

StagedRows::StagedRows(const container::CheckpointReader& reader,
                       const MatrixSource& matrix,
                       std::int64_t first,
                       std::int64_t rows,
                       std::span<std::byte> memory)
    : dtype_(reader.tensors()[matrix.tensor].dtype),
      columns_(matrix.columns),
      stride_(
          padded_stride(static_cast<std::size_t>(rows), dtype_bytes(dtype_))),
      memory_(memory) {
  NIBBLE_ASSERT(memory.size() == bytes(matrix, dtype_, rows));
  read_stored(reader,
              matrix,
              first,
              static_cast<std::size_t>(rows),
              0,
              static_cast<std::size_t>(columns_),
              stride_,
              memory.data());
}

ConstTensorView StagedRows::rows(std::int64_t first,
                                 std::int64_t count,
                                 std::vector<std::byte>& into) const {
  const std::size_t element = dtype_bytes(dtype_);
  const auto columns = static_cast<std::size_t>(columns_);
  into.resize(static_cast<std::size_t>(count) * columns * element);
  transpose_elements(memory_.data() + static_cast<std::size_t>(first) * element,
                     stride_,
                     static_cast<std::size_t>(count),
                     columns,
                     into.data(),
                     columns,
                     element);
  return {into.data(), dtype_, {count, columns_}};
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
