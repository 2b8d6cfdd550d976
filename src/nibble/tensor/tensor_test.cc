#include "nibble/tensor/tensor.h"

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble {
namespace {

constexpr int kDTypes = static_cast<int>(DType::kU64) + 1;

TEST(DType, NamesAreUniqueAndLeadBack) {
  std::set<std::string_view> names;
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_TRUE(names.insert(dtype_name(dtype)).second);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_name("F8_E4M3"), DType::kF8E4M3);
  EXPECT_FALSE(dtype_from_name("f32"));
  EXPECT_FALSE(dtype_from_name(""));
}

TEST(DType, SizesAreThoseOfTheFormat) {
  EXPECT_EQ(dtype_bits(DType::kF4), 4);
  EXPECT_EQ(dtype_bits(DType::kF6E2M3), 6);
  EXPECT_EQ(dtype_bits(DType::kF6E3M2), 6);
  EXPECT_EQ(dtype_bytes(DType::kBool), 1u);
  EXPECT_EQ(dtype_bytes(DType::kF8E8M0), 1u);
  EXPECT_EQ(dtype_bytes(DType::kBF16), 2u);
  EXPECT_EQ(dtype_bytes(DType::kU32), 4u);
  EXPECT_EQ(dtype_bytes(DType::kC64), 8u);
  EXPECT_EQ(dtype_bytes(DType::kI64), 8u);
}

TEST(DType, WeightsAreFloatsOf16Or32Bits) {
  std::set<DType> weights;
  for (int i = 0; i < kDTypes; ++i) {
    if (is_weight_dtype(static_cast<DType>(i))) {
      weights.insert(static_cast<DType>(i));
    }
  }
  EXPECT_EQ(weights, (std::set<DType>{DType::kF16, DType::kBF16, DType::kF32}));
}

TEST(Shape, CountsElementsAndPrints) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ((Shape{3, 0, 5}).elements(), 0);
  EXPECT_EQ((Shape{2, 3, 4}).elements(), 24);
  EXPECT_EQ((Shape{2, 3})[1], 3);
  EXPECT_EQ(to_string(Shape{256, 768}), "(256, 768)");
  EXPECT_EQ(to_string(Shape{}), "()");
  EXPECT_TRUE((Shape{2, 3}) == (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{2, 3, 1}));
}

TEST(Shape, RefusesMoreThanEightDimensions) {
  const std::vector<std::int64_t> dims(9, 1);
  EXPECT_NO_THROW(Shape(std::span(dims).first(8)));
  expect_error(ErrorCode::kUnsupported, "found 9 dimensions", [&] {
    static_cast<void>(Shape(std::span(dims)));
  });
}

TEST(View, RowsAreAPartOfTheOutermostDimension) {
  const Tensor tensor = Tensor::from_floats({3, 2}, {0, 1, 10, 11, 20, 21});
  const ConstTensorView rows = tensor.view().rows(1, 2);
  EXPECT_TRUE(rows.shape() == (Shape{2, 2}));
  EXPECT_EQ(rows.as<float>()[0], 10);
  EXPECT_EQ(rows.as<float>()[3], 21);
  EXPECT_EQ(tensor.view().rows(3, 0).elements(), 0);
}

TEST(View, RefusesAnotherElementType) {
  const Tensor tensor = Tensor::zeros(DType::kI8, {4});
  EXPECT_EQ(tensor.view().as<std::int8_t>().size(), 4u);
  expect_error(ErrorCode::kInternal, "found I8, expected F32", [&] {
    static_cast<void>(tensor.view().as<float>());
  });
}

TEST(View, BytesOfSubByteTypesArePacked) {
  EXPECT_EQ(ConstTensorView(nullptr, DType::kF4, {3, 4}).bytes(), 6u);
  EXPECT_TRUE(ConstTensorView().empty());
}

TEST(Tensor, IsAlignedAndOwnsItsElements) {
  Tensor tensor(DType::kBF16, {3, 5});
  EXPECT_EQ(tensor.bytes(), 30u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data()) % 64, 0u);
  tensor.view().raw<std::uint16_t>()[14] = 7;
  const Tensor copy = Tensor::copy_of(tensor.view());
  tensor.view().raw<std::uint16_t>()[14] = 8;
  EXPECT_EQ(copy.view().raw<std::uint16_t>()[14], 7);
  const Tensor moved = std::move(tensor);
  EXPECT_EQ(moved.view().raw<std::uint16_t>()[14], 8);
}

TEST(Tensor, MayBeWithoutElements) {
  const Tensor tensor = Tensor::zeros(DType::kF32, {0, 5});
  EXPECT_FALSE(tensor.empty());
  EXPECT_EQ(tensor.bytes(), 0u);
  EXPECT_EQ(Tensor::copy_of(tensor.view()).bytes(), 0u);
  EXPECT_TRUE(Tensor().empty());
}

TEST(Tensor, RefusesTheWrongNumberOfValues) {
  expect_error(ErrorCode::kInternal, "(2, 2): found 3 values", [] {
    static_cast<void>(Tensor::from_floats({2, 2}, {1, 2, 3}));
  });
}

TEST(Tensor, KeepsTheOwnerOfForeignElementsAliveReadOnly) {
  auto owner = std::make_shared<std::array<float, 2>>();
  (*owner)[1] = 5;
  const std::weak_ptr<const void> watch = owner;
  const auto* data = reinterpret_cast<const std::byte*>(owner->data());
  {
    Tensor tensor(ConstTensorView(data, DType::kF32, {2}), std::move(owner));
    EXPECT_FALSE(watch.expired());
    EXPECT_EQ(std::as_const(tensor).view().as<float>()[1], 5);
    expect_error(ErrorCode::kInternal, "read-only", [&] {
      static_cast<void>(tensor.view());
    });
  }
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace nibble
