#include "nibble/container/cast.h"

#include <algorithm>
#include <cmath>

#include "nibble/base/error.h"
#include "nibble/tensor/convert.h"

namespace nibble::container {
namespace {

constexpr std::size_t kChunk = 1 << 16;  // elements

void refuse_overflow(const TensorInfo& tensor,
                     DType to,
                     ConstTensorView converted,
                     std::span<const float> values) {
  std::vector<float> back(values.size());
  convert_to_float(converted, back);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && !std::isfinite(back[i])) {
      fail_with_hint(ErrorCode::kUnsupported,
                     "choose bf16, which holds larger numbers",
                     "tensor {}: found {}, expected a value that {} can hold",
                     printable(tensor.name),
                     values[i],
                     dtype_name(to));
    }
  }
}

}  // namespace

CastReader::CastReader(std::shared_ptr<const CheckpointReader> source, DType to)
    : source_(std::move(source)) {
  for (const TensorInfo& tensor : source_->tensors()) {
    infos_.push_back(tensor);
    TensorInfo& info = infos_.back();
    if (is_weight_dtype(info.dtype)) {
      info.dtype = to;
      info.bytes =
          static_cast<std::uint64_t>(info.shape.elements()) * dtype_bytes(to);
    }
  }
  index_names();
}

const TensorInfo& CastReader::original(const TensorInfo& tensor) const {
  return source_->tensors()[index_of(tensor)];
}

void CastReader::read(const TensorInfo& tensor,
                      std::uint64_t offset,
                      std::span<std::byte> out) const {
  const TensorInfo& from = original(tensor);
  if (from.dtype == tensor.dtype) {
    source_->read(from, offset, out);
    return;
  }
  const std::size_t item = dtype_bytes(tensor.dtype);
  const std::size_t from_item = dtype_bytes(from.dtype);
  NIBBLE_CHECK(offset % item == 0 && out.size() % item == 0,
               kInternal,
               "tensor {}: found a read of parts of elements",
               printable(tensor.name));
  std::vector<std::byte> bytes;
  std::vector<float> values;
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t count = std::min(kChunk, (out.size() - done) / item);
    const auto elements = static_cast<std::int64_t>(count);
    bytes.resize(count * from_item);
    values.resize(count);
    source_->read(from, (offset + done) / item * from_item, bytes);
    convert_to_float({bytes.data(), from.dtype, {elements}}, values);
    const TensorView to(out.data() + done, tensor.dtype, {elements});
    convert_from_float(values, to);
    if (tensor.dtype == DType::kF16) {
      refuse_overflow(tensor, tensor.dtype, to, values);
    }
    done += count * item;
  }
}

std::optional<Tensor> CastReader::map(const TensorInfo& tensor) const {
  const TensorInfo& from = original(tensor);
  return from.dtype == tensor.dtype ? source_->map(from) : std::nullopt;
}

void CastReader::drop_cache(const TensorInfo& tensor,
                            std::uint64_t offset,
                            std::uint64_t bytes) const {
  const TensorInfo& from = original(tensor);
  const std::size_t item = dtype_bytes(tensor.dtype);
  const std::size_t from_item = dtype_bytes(from.dtype);
  source_->drop_cache(
      from, offset / item * from_item, bytes / item * from_item);
}

}  // namespace nibble::container
