#include "nibble/quant/schemes/integer/codes.h"

#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nibble/quant/schemes/integer/scheme.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

using ::testing::ElementsAre;

// Eight BF16 weights whose scales, quotients and codes were computed with an
// independent implementation of the reference tool's arithmetic.
constexpr std::array<std::uint16_t, 8> kWeights{
    0x3C4A, 0xBD3B, 0x3CF7, 0x0000, 0xBC01, 0x3CB6, 0xBD3B, 0x3D36};

NumberSpec spec_of(int bits, bool symmetric) {
  NumberSpec spec;
  spec.scheme = bits == 4 ? "int4" : "int8";
  spec.bits = bits;
  spec.symmetric = symmetric;
  spec.grain = Grain::kGroup;
  spec.group = 8;
  return spec;
}

Tensor bf16_row(std::span<const std::uint16_t> bits) {
  Tensor tensor(DType::kBF16, {1, static_cast<std::int64_t>(bits.size())});
  std::copy(
      bits.begin(), bits.end(), tensor.view().raw<std::uint16_t>().begin());
  return tensor;
}

std::vector<int> codes_of(const Quantized& quantized) {
  const auto codes = quantized.codes.view().as<std::int8_t>();
  return {codes.begin(), codes.end()};
}

std::uint16_t scale_bits(const Quantized& quantized) {
  return quantized.scales.view().raw<std::uint16_t>()[0];
}

Quantized encode(const NumberSpec& spec,
                 std::span<const std::uint16_t> bits,
                 Numerics numerics) {
  const Tensor weight = bf16_row(bits);
  return integer_scheme().encode(
      spec,
      weight.view(),
      {.numerics = numerics, .tensor_min = {}, .tensor_max = {}});
}

TEST(IntegerCodes, FourBitsSymmetricMatchTheCheckVector) {
  for (const Numerics numerics : {Numerics::kExact, Numerics::kReference}) {
    const Quantized result = encode(spec_of(4, true), kWeights, numerics);
    EXPECT_EQ(scale_bits(result), 0x3BC7);
    EXPECT_THAT(codes_of(result), ElementsAre(2, -8, 5, 0, -1, 4, -8, 7));
  }
}

TEST(IntegerCodes, FourBitsAsymmetricMatchTheCheckVector) {
  const Quantized result =
      encode(spec_of(4, false), kWeights, Numerics::kReference);
  EXPECT_EQ(scale_bits(result), 0x3BC4);
  EXPECT_EQ(result.zeros->view().as<std::int8_t>()[0], 0);
  EXPECT_THAT(codes_of(result), ElementsAre(2, -8, 5, 0, -1, 4, -8, 7));
}

TEST(IntegerCodes, EightBitsShowTheRoundedQuotientOfTheReference) {
  const Quantized reference =
      encode(spec_of(8, true), kWeights, Numerics::kReference);
  EXPECT_EQ(scale_bits(reference), 0x39BC);
  EXPECT_THAT(codes_of(reference),
              ElementsAre(34, -128, 84, 0, -22, 62, -128, 124));
  const Quantized exact = encode(spec_of(8, true), kWeights, Numerics::kExact);
  EXPECT_EQ(scale_bits(exact), 0x39BC);
  EXPECT_THAT(codes_of(exact),
              ElementsAre(34, -127, 84, 0, -22, 62, -127, 124));
}

TEST(IntegerCodes, ArithmeticsDifferWhereTheQuotientRoundsToATie) {
  // 0x3CBC / 0x3B89 = 5.48905, and 5.5 in BF16.
  constexpr std::array<std::uint16_t, 8> kRow{0x3D00, 0x3CBC};
  const Quantized reference =
      encode(spec_of(4, true), kRow, Numerics::kReference);
  EXPECT_EQ(scale_bits(reference), 0x3B89);
  EXPECT_EQ(codes_of(reference)[1], 6);
  EXPECT_EQ(codes_of(encode(spec_of(4, true), kRow, Numerics::kExact))[1], 5);
}

TEST(IntegerCodes, TiesGoToTheEvenCode) {
  // Scale 1: 7.5 clamps to 7, -7.5 and the other halves go to even.
  std::vector<std::uint16_t> row;
  for (const float x : {7.5F, -7.5F, 0.5F, -0.5F, 1.5F, 2.5F, -2.5F, 6.5F}) {
    row.push_back(float_to_bf16(x));
  }
  const Quantized result = encode(spec_of(4, true), row, Numerics::kExact);
  EXPECT_EQ(scale_bits(result), 0x3F80);
  EXPECT_THAT(codes_of(result), ElementsAre(7, -8, 0, 0, 2, 2, -2, 6));
}

TEST(IntegerCodes, EveryCodeDecodesToItsMultipleOfTheScale) {
  Quantized quantized;
  quantized.spec = spec_of(8, false);
  quantized.spec.grain = Grain::kChannel;
  quantized.rows = 1;
  quantized.columns = 256;
  quantized.codes = Tensor(DType::kI8, {1, 256});
  quantized.scales = Tensor(DType::kBF16, {1, 1});
  quantized.scales.view().raw<std::uint16_t>()[0] = 0x3C4A;
  quantized.zeros = Tensor(DType::kI8, {1, 1});
  for (const int zero : {-128, -3, 0, 127}) {
    quantized.zeros->view().as<std::int8_t>()[0] =
        static_cast<std::int8_t>(zero);
    for (int code = -128; code < 128; ++code) {
      quantized.codes.view()
          .as<std::int8_t>()[static_cast<std::size_t>(code + 128)] =
          static_cast<std::int8_t>(code);
    }
    Tensor decoded(DType::kBF16, {1, 256});
    integer_scheme().decode(quantized, decoded.view());
    for (int code = -128; code < 128; ++code) {
      const float value =
          static_cast<float>(code - zero) * bf16_to_float(0x3C4A);
      EXPECT_EQ(decoded.view()
                    .raw<std::uint16_t>()[static_cast<std::size_t>(code + 128)],
                float_to_bf16(value));
    }
  }
}

TEST(IntegerCodes, DecodeFollowsTheOrderOfColumns) {
  Quantized quantized;
  quantized.spec = spec_of(4, true);
  quantized.spec.group = 2;
  quantized.rows = 1;
  quantized.columns = 4;
  quantized.codes = Tensor(DType::kI8, {1, 4});
  std::ranges::fill(quantized.codes.view().as<std::int8_t>(), std::int8_t{3});
  quantized.scales = Tensor(DType::kBF16, {1, 2});
  quantized.scales.view().raw<std::uint16_t>()[0] = float_to_bf16(1);
  quantized.scales.view().raw<std::uint16_t>()[1] = float_to_bf16(2);
  quantized.order = Tensor(DType::kI32, {4});
  const std::array<std::int32_t, 4> order{1, 0, 0, 1};
  std::ranges::copy(order, quantized.order->view().as<std::int32_t>().begin());
  Tensor decoded(DType::kF32, {1, 4});
  integer_scheme().decode(quantized, decoded.view());
  EXPECT_THAT(decoded.view().as<float>(), ElementsAre(6, 3, 3, 6));
}

}  // namespace
}  // namespace nibble::quant
