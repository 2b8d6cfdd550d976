#include "nibble/tensor/convert.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "nibble/tensor/tensor.h"

namespace nibble {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

// Value of a code by the textbook definition of a small float.
double value_of(unsigned code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const bool negative = (code >> (exponent_bits + mantissa_bits) & 1u) != 0;
  const int exponent =
      static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double fraction = std::ldexp(
      static_cast<double>(code & ((1u << mantissa_bits) - 1)), -mantissa_bits);
  const double magnitude = exponent == 0
                               ? std::ldexp(fraction, 1 - bias)
                               : std::ldexp(1 + fraction, exponent - bias);
  return negative ? -magnitude : magnitude;
}

// ---- BF16 ------------------------------------------------------------------

TEST(BF16, EveryCodeSurvivesARoundTrip) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    const float value = bf16_to_float(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value)))) << code;
      continue;
    }
    ASSERT_EQ(float_to_bf16(value), bits);
    if (std::isfinite(value)) {
      ASSERT_EQ(static_cast<double>(value), value_of(code, 8, 7)) << code;
    }
  }
}

TEST(BF16, TiesGoToEven) {
  // 1 + 2^-8 lies between 1 (even) and 1 + 2^-7 (odd).
  EXPECT_EQ(round_to_bf16(1.00390625F), 1.0F);
  EXPECT_EQ(round_to_bf16(1.01171875F), 1.015625F);
  EXPECT_EQ(round_to_bf16(std::nextafter(1.00390625F, 2.0F)), 1.0078125F);
  EXPECT_EQ(round_to_bf16(-1.00390625F), -1.0F);
}

TEST(BF16, ExtremesKeepTheirMeaning) {
  EXPECT_EQ(round_to_bf16(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(round_to_bf16(-kInfinity), -kInfinity);
  EXPECT_EQ(bits_of(round_to_bf16(-0.0F)), 0x80000000u);
  // Its mantissa lies wholly in the half that is cut off.
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0x7F800001u))));
}

// ---- F16 -------------------------------------------------------------------

TEST(F16, EveryCodeHasItsDefinedValueAndSurvivesARoundTrip) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    const float value = f16_to_float(bits);
    if ((code & 0x7C00u) == 0x7C00u) {
      const bool nan = (code & 0x3FFu) != 0;
      ASSERT_EQ(std::isnan(value), nan) << code;
      ASSERT_EQ(std::isinf(value), !nan) << code;
      ASSERT_EQ(std::signbit(value), (code & 0x8000u) != 0) << code;
    } else {
      ASSERT_EQ(static_cast<double>(value), value_of(code, 5, 10)) << code;
    }
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(f16_to_float(float_to_f16(value)))) << code;
    } else {
      ASSERT_EQ(float_to_f16(value), bits);
    }
  }
}

// The middle of every pair of neighbours goes to the even one, and the
// floats beside the middle go to the nearer one.
TEST(F16, RoundsEveryIntervalToNearestEven) {
  for (std::uint32_t code = 0; code < 0x7BFF; ++code) {
    const auto low = static_cast<std::uint16_t>(code);
    const auto high = static_cast<std::uint16_t>(code + 1);
    const float middle = (f16_to_float(low) + f16_to_float(high)) / 2;
    ASSERT_EQ(float_to_f16(middle), code % 2 == 0 ? low : high) << code;
    ASSERT_EQ(float_to_f16(std::nextafter(middle, 0.0F)), low) << code;
    ASSERT_EQ(float_to_f16(std::nextafter(middle, kInfinity)), high) << code;
    ASSERT_EQ(float_to_f16(-middle), (code % 2 == 0 ? low : high) | 0x8000u);
  }
}

TEST(F16, OverflowsToInfinityFromTheMiddleOfTheLastStep) {
  EXPECT_EQ(float_to_f16(std::nextafter(65520.0F, 0.0F)), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_f16(-1e30F), 0xFC00);
  EXPECT_EQ(float_to_f16(kNaN) & 0x7E00, 0x7E00);
}

// ---- FP8 -------------------------------------------------------------------

TEST(F8E4M3, EveryCodeHasItsDefinedValue) {
  for (unsigned code = 0; code < 256; ++code) {
    const float value = f8e4m3_to_float(static_cast<std::uint8_t>(code));
    if ((code & 0x7Fu) == 0x7Fu) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_EQ(std::signbit(value), code == 0xFF) << code;
      continue;
    }
    EXPECT_EQ(static_cast<double>(value), value_of(code, 4, 3)) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
    EXPECT_EQ(float_to_f8e4m3(value), code);
  }
  EXPECT_EQ(f8e4m3_to_float(0x7E), kF8E4M3Max);
}

TEST(F8E4M3, RoundsEveryIntervalToNearestEven) {
  for (unsigned code = 0; code < 0x7E; ++code) {
    const auto low = static_cast<std::uint8_t>(code);
    const auto high = static_cast<std::uint8_t>(code + 1);
    const float middle = (f8e4m3_to_float(low) + f8e4m3_to_float(high)) / 2;
    EXPECT_EQ(float_to_f8e4m3(middle), code % 2 == 0 ? low : high) << code;
    EXPECT_EQ(float_to_f8e4m3(std::nextafter(middle, 0.0F)), low) << code;
    EXPECT_EQ(float_to_f8e4m3(std::nextafter(middle, kInfinity)), high);
    EXPECT_EQ(float_to_f8e4m3(-middle), (code % 2 == 0 ? low : high) | 0x80u);
  }
}

TEST(F8E4M3, SaturatesAndKeepsNaN) {
  EXPECT_EQ(float_to_f8e4m3(449.0F), 0x7E);
  EXPECT_EQ(float_to_f8e4m3(1e30F), 0x7E);
  EXPECT_EQ(float_to_f8e4m3(kInfinity), 0x7E);
  EXPECT_EQ(float_to_f8e4m3(-kInfinity), 0xFE);
  EXPECT_EQ(float_to_f8e4m3(kNaN), 0x7F);
  EXPECT_EQ(float_to_f8e4m3(std::numeric_limits<float>::denorm_min()), 0x00);
  EXPECT_EQ(float_to_f8e4m3(-0.0F), 0x80);
}

TEST(F8E5M2, EveryCodeHasItsDefinedValue) {
  for (unsigned code = 0; code < 256; ++code) {
    const float value = f8e5m2_to_float(static_cast<std::uint8_t>(code));
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
    if ((code & 0x7Cu) == 0x7Cu) {
      EXPECT_EQ(std::isinf(value), (code & 3u) == 0) << code;
      EXPECT_EQ(std::isnan(value), (code & 3u) != 0) << code;
    } else {
      EXPECT_EQ(static_cast<double>(value), value_of(code, 5, 2)) << code;
    }
  }
}

// ---- Whole tensors ---------------------------------------------------------

// A tensor of raw elements.
template <typename T>
Tensor tensor_of(DType dtype, const std::vector<T>& values) {
  Tensor tensor(dtype, {static_cast<std::int64_t>(values.size())});
  std::copy(
      values.begin(), values.end(), tensor.view().template raw<T>().begin());
  return tensor;
}

std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> floats(
      static_cast<std::size_t>(tensor.shape().elements()));
  convert_to_float(tensor.view(), floats);
  return floats;
}

TEST(ConvertToFloat, AgreesWithTheConversionOfOneElement) {
  std::vector<std::uint16_t> halves(0x10000);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<std::uint16_t>(i);
  }
  const auto f16 = floats_of(tensor_of(DType::kF16, halves));
  const auto bf16 = floats_of(tensor_of(DType::kBF16, halves));
  for (std::size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(bits_of(f16[i]), bits_of(f16_to_float(halves[i]))) << i;
    ASSERT_EQ(bits_of(bf16[i]), bits_of(bf16_to_float(halves[i]))) << i;
  }
  std::vector<std::uint8_t> bytes(256);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(i);
  }
  const auto e4m3 = floats_of(tensor_of(DType::kF8E4M3, bytes));
  const auto e5m2 = floats_of(tensor_of(DType::kF8E5M2, bytes));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(bits_of(e4m3[i]), bits_of(f8e4m3_to_float(bytes[i]))) << i;
    EXPECT_EQ(bits_of(e5m2[i]), bits_of(f8e5m2_to_float(bytes[i]))) << i;
  }
}

TEST(ConvertToFloat, TakesIntegersAndWideFloats) {
  EXPECT_EQ(floats_of(tensor_of<std::int8_t>(DType::kI8, {-128, 127})),
            (std::vector<float>{-128, 127}));
  EXPECT_EQ(floats_of(tensor_of<std::uint8_t>(DType::kU8, {0, 255})),
            (std::vector<float>{0, 255}));
  EXPECT_EQ(floats_of(tensor_of<std::int32_t>(DType::kI32, {-5, 1 << 24})),
            (std::vector<float>{-5, 1 << 24}));
  EXPECT_EQ(floats_of(tensor_of<std::int64_t>(DType::kI64, {1ll << 40})),
            (std::vector<float>{0x1p40F}));
  EXPECT_EQ(floats_of(tensor_of<double>(DType::kF64, {0.1})),
            (std::vector<float>{0.1F}));
  EXPECT_EQ(floats_of(tensor_of<float>(DType::kF32, {0.5F, -1})),
            (std::vector<float>{0.5F, -1}));
}

TEST(ConvertToFloat, RefusesOtherTypesAndSizes) {
  expect_error(ErrorCode::kUnsupported, "found F8_E8M0", [] {
    static_cast<void>(floats_of(Tensor::zeros(DType::kF8E8M0, {4})));
  });
  expect_error(ErrorCode::kInternal, "found 4 elements, expected 3", [] {
    std::vector<float> floats(3);
    convert_to_float(Tensor::zeros(DType::kF32, {4}).view(), floats);
  });
}

TEST(ConvertFromFloat, AgreesWithTheConversionOfOneElement) {
  std::mt19937 random(7);
  std::vector<float> floats(10'000);
  for (float& value : floats) {
    value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  }
  Tensor f16(DType::kF16, {10'000});
  Tensor bf16(DType::kBF16, {10'000});
  Tensor f32(DType::kF32, {10'000});
  convert_from_float(floats, f16.view());
  convert_from_float(floats, bf16.view());
  convert_from_float(floats, f32.view());
  for (std::size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(f16.view().raw<std::uint16_t>()[i], float_to_f16(floats[i]));
    ASSERT_EQ(bf16.view().raw<std::uint16_t>()[i], float_to_bf16(floats[i]));
    ASSERT_EQ(bits_of(f32.view().as<float>()[i]), bits_of(floats[i]));
  }
}

TEST(ConvertFromFloat, RefusesOtherTypesAndSizes) {
  const std::vector<float> floats(4);
  Tensor bytes(DType::kI8, {4});
  Tensor three(DType::kF32, {3});
  expect_error(ErrorCode::kUnsupported, "found I8", [&] {
    convert_from_float(floats, bytes.view());
  });
  expect_error(ErrorCode::kInternal, "found 4 elements, expected 3", [&] {
    convert_from_float(floats, three.view());
  });
}

TEST(RoundTo, KnowsTheTypesOfWeights) {
  EXPECT_EQ(round_to(DType::kF32, 0.1F), 0.1F);
  EXPECT_EQ(round_to(DType::kBF16, 1.00390625F), 1.0F);
  EXPECT_EQ(round_to(DType::kF16, 65504.0F), 65504.0F);
  expect_error(ErrorCode::kUnsupported, "found U8", [] {
    static_cast<void>(round_to(DType::kU8, 1.0F));
  });
}

}  // namespace
}  // namespace nibble
