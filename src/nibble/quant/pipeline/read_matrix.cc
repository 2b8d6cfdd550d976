#include "nibble/quant/pipeline/read_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "nibble/base/error.h"
#include "nibble/quant/pipeline/figures.h"
#include "nibble/quant/pipeline/transpose.h"

namespace nibble::quant {
namespace {

using container::TensorInfo;

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
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t at =
          matrix.offset_elements +
          static_cast<std::int64_t>(c + i) * matrix.stride_elements + first;
      reader.read(tensor,
                  static_cast<std::uint64_t>(at) * element,
                  {block.data() + i * stride * element, rows * element});
    }
    const auto transpose_as = [&]<typename T>(T* to) {
      transpose(reinterpret_cast<const T*>(block.data()),
                stride,
                rows,
                count,
                to + c,
                columns);
    };
    if (element == sizeof(std::uint16_t)) {
      transpose_as(reinterpret_cast<std::uint16_t*>(out.data()));
    } else {
      transpose_as(reinterpret_cast<std::uint32_t*>(out.data()));
    }
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
