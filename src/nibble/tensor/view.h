#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>

#include "nibble/base/error.h"
#include "nibble/tensor/dtype.h"

namespace nibble {

// Up to 8 dimensions, each at least 0, outermost first.
class Shape {
 public:
  static constexpr std::size_t kMaxRank = 8;

  Shape() = default;

  Shape(std::initializer_list<std::int64_t> dims)
      : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}

  explicit Shape(std::span<const std::int64_t> dims) : rank_(dims.size()) {
    NIBBLE_CHECK(rank_ <= kMaxRank,
                 kUnsupported,
                 "tensor: found {} dimensions, expected at most {}",
                 rank_,
                 kMaxRank);
    std::copy(dims.begin(), dims.end(), dims_.begin());
  }

  [[nodiscard]] std::size_t rank() const { return rank_; }

  [[nodiscard]] std::int64_t operator[](std::size_t i) const {
    NIBBLE_ASSERT(i < rank_);
    return dims_[i];
  }

  [[nodiscard]] const std::int64_t* begin() const { return dims_.data(); }

  [[nodiscard]] const std::int64_t* end() const { return begin() + rank_; }

  // Product of the dimensions; 1 for rank 0.
  [[nodiscard]] std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t dim : *this) {
      product *= dim;
    }
    return product;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  std::size_t rank_ = 0;
};

// "(256, 768)".
[[nodiscard]] std::string to_string(const Shape& shape);

// The DType of a C++ type with the same layout.
template <typename T>
[[nodiscard]] constexpr DType dtype_of() {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, float>) {
    return DType::kF32;
  } else if constexpr (std::is_same_v<Plain, double>) {
    return DType::kF64;
  } else if constexpr (std::is_same_v<Plain, std::int8_t>) {
    return DType::kI8;
  } else if constexpr (std::is_same_v<Plain, std::uint8_t>) {
    return DType::kU8;
  } else if constexpr (std::is_same_v<Plain, std::int32_t>) {
    return DType::kI32;
  } else {
    static_assert(std::is_same_v<Plain, std::int64_t>, "no DType for this");
    return DType::kI64;
  }
}

// Non-owning, row-major, contiguous block of elements; copied by value. It
// must not outlive what it views.
template <typename Byte>
class BasicView {
 public:
  BasicView() = default;

  BasicView(Byte* data, DType dtype, const Shape& shape)
      : data_(data), dtype_(dtype), shape_(shape) {}

  // A TensorView converts to a ConstTensorView.
  template <typename Other,
            typename = std::enable_if_t<std::is_convertible_v<Other*, Byte*>>>
  // NOLINTNEXTLINE(google-explicit-constructor)
  BasicView(const BasicView<Other>& other)
      : data_(other.data()), dtype_(other.dtype()), shape_(other.shape()) {}

  [[nodiscard]] Byte* data() const { return data_; }

  [[nodiscard]] DType dtype() const { return dtype_; }

  [[nodiscard]] const Shape& shape() const { return shape_; }

  [[nodiscard]] std::int64_t dim(std::size_t i) const { return shape_[i]; }

  [[nodiscard]] std::int64_t elements() const { return shape_.elements(); }

  [[nodiscard]] bool empty() const { return data_ == nullptr; }

  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(elements()) *
           static_cast<std::size_t>(dtype_bits(dtype_)) / 8;
  }

  [[nodiscard]] std::span<Byte> byte_span() const { return {data_, bytes()}; }

  // The elements as T; kInternal when the dtype is another one. 16- and 8-bit
  // floats are read through raw<T>.
  template <typename T>
  [[nodiscard]] auto as() const {
    NIBBLE_CHECK(dtype_ == dtype_of<T>(),
                 kInternal,
                 "view: found {}, expected {}",
                 dtype_name(dtype_),
                 dtype_name(dtype_of<T>()));
    return raw<T>();
  }

  // The elements as bit patterns of type T (std::uint16_t for BF16 and F16).
  template <typename T>
  [[nodiscard]] auto raw() const {
    NIBBLE_ASSERT(sizeof(T) * 8 ==
                  static_cast<std::size_t>(dtype_bits(dtype_)));
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return std::span<Element>(reinterpret_cast<Element*>(data_),
                              static_cast<std::size_t>(elements()));
  }

  // Rows [first, first + count) of the outermost dimension.
  [[nodiscard]] BasicView rows(std::int64_t first, std::int64_t count) const {
    NIBBLE_ASSERT(first >= 0 && count >= 0 && first + count <= dim(0));
    std::array<std::int64_t, Shape::kMaxRank> dims{};
    std::copy(shape_.begin(), shape_.end(), dims.begin());
    const std::int64_t row_elements = dims[0] == 0 ? 0 : elements() / dims[0];
    dims[0] = count;
    const auto offset = static_cast<std::size_t>(first * row_elements) *
                        static_cast<std::size_t>(dtype_bits(dtype_)) / 8;
    return {data_ + offset,
            dtype_,
            Shape(std::span<const std::int64_t>(dims.data(), shape_.rank()))};
  }

 private:
  Byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Shape shape_;
};

using TensorView = BasicView<std::byte>;
using ConstTensorView = BasicView<const std::byte>;

}  // namespace nibble
