#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "nibble/base/memory_budget.h"
#include "nibble/tensor/view.h"

namespace nibble {

// Move-only owner of a block of elements in host memory, 64-byte aligned.
// Either allocated here or a part of a mapped file kept alive by it.
class Tensor {
 public:
  Tensor() = default;
  // Uninitialized elements.
  Tensor(DType dtype, const Shape& shape);
  // Elements of view, which stay alive through owner.
  Tensor(ConstTensorView view, std::shared_ptr<const void> owner);

  // Zero-filled elements.
  static Tensor zeros(DType dtype, const Shape& shape);
  // A copy of a view.
  static Tensor copy_of(ConstTensorView view);
  // A float32 tensor with these values.
  static Tensor from_floats(const Shape& shape,
                            const std::vector<float>& values);

  // For tensors allocated here only; a mapped one is read-only (kInternal).
  [[nodiscard]] TensorView view();
  [[nodiscard]] ConstTensorView view() const;

  [[nodiscard]] const Shape& shape() const { return shape_; }

  [[nodiscard]] DType dtype() const { return dtype_; }

  [[nodiscard]] bool empty() const { return data_ == nullptr; }

  [[nodiscard]] std::size_t bytes() const { return view().bytes(); }

 private:
  const std::byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Shape shape_;
  std::shared_ptr<const void> owner_;
  bool writable_ = false;
};

}  // namespace nibble
