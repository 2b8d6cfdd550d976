#include "nibble/tensor/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "nibble/base/checked_math.h"

namespace nibble {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

Tensor::Tensor(DType dtype, const Shape& shape)
    : dtype_(dtype), shape_(shape), writable_(true) {
  const std::size_t bytes = ConstTensorView(nullptr, dtype, shape).bytes();
  void* block = std::aligned_alloc(kAlignment, round_up(bytes + 1, kAlignment));
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  data_ = static_cast<const std::byte*>(block);
  owner_ = std::shared_ptr<const void>(block, std::free);
}

Tensor::Tensor(ConstTensorView view, std::shared_ptr<const void> owner)
    : data_(view.data()),
      dtype_(view.dtype()),
      shape_(view.shape()),
      owner_(std::move(owner)) {}

Tensor Tensor::zeros(DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  std::memset(tensor.view().data(), 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::copy_of(ConstTensorView view) {
  Tensor tensor(view.dtype(), view.shape());
  if (view.bytes() != 0) {
    std::memcpy(tensor.view().data(), view.data(), view.bytes());
  }
  return tensor;
}

Tensor Tensor::from_floats(const Shape& shape,
                           const std::vector<float>& values) {
  Tensor tensor(DType::kF32, shape);
  NIBBLE_CHECK(values.size() == static_cast<std::size_t>(shape.elements()),
               kInternal,
               "tensor {}: found {} values",
               to_string(shape),
               values.size());
  std::copy(values.begin(), values.end(), tensor.view().as<float>().begin());
  return tensor;
}

TensorView Tensor::view() {
  NIBBLE_CHECK(writable_, kInternal, "tensor: found a mapped, read-only one");
  // NOLINTNEXTLINE: allocated here, and this object is not const
  return {const_cast<std::byte*>(data_), dtype_, shape_};
}

ConstTensorView Tensor::view() const {
  return {data_, dtype_, shape_};
}

}  // namespace nibble
