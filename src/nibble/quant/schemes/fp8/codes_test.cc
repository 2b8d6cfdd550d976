#include "nibble/quant/schemes/fp8/codes.h"

#include <algorithm>
#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nibble/quant/schemes/fp8/scheme.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

using ::testing::ElementsAre;

NumberSpec fp8_spec(Grain grain) {
  NumberSpec spec;
  spec.scheme = "fp8";
  spec.floating = true;
  spec.grain = grain;
  if (grain == Grain::kBlock) {
    spec.block_rows = 128;
    spec.block_columns = 128;
  }
  return spec;
}

Tensor matrix(std::int64_t rows, const std::vector<float>& values) {
  Tensor tensor(DType::kBF16,
                {rows, static_cast<std::int64_t>(values.size()) / rows});
  convert_from_float(values, tensor.view());
  return tensor;
}

Quantized encode(const NumberSpec& spec,
                 const Tensor& weight,
                 Numerics numerics = Numerics::kExact) {
  EncodeOptions options;
  options.numerics = numerics;
  return fp8_scheme().encode(spec, weight.view(), options);
}

std::vector<int> codes_of(const Quantized& quantized) {
  const auto codes = quantized.codes.view().raw<std::uint8_t>();
  return {codes.begin(), codes.end()};
}

TEST(Fp8Codes, MatchTheCheckVector) {
  // BF16 bits, scale and codes from an independent implementation.
  constexpr std::array<std::uint16_t, 8> kWeights{
      0x3C4A, 0xBD3B, 0x3CF7, 0x0000, 0xBC01, 0x3CB6, 0xBD3B, 0x3D36};
  Tensor weight(DType::kBF16, {1, 8});
  std::ranges::copy(kWeights, weight.view().raw<std::uint16_t>().begin());
  for (const Numerics numerics : {Numerics::kExact, Numerics::kReference}) {
    const Quantized result =
        encode(fp8_spec(Grain::kChannel), weight, numerics);
    EXPECT_EQ(result.scales.view().raw<std::uint16_t>()[0], 0x38D6);
    EXPECT_THAT(codes_of(result),
                ElementsAre(0x6F, 0xFE, 0x79, 0x00, 0xEA, 0x76, 0xFE, 0x7E));
  }
}

TEST(Fp8Codes, EveryFiniteCodeSurvivesARoundTrip) {
  std::vector<float> values;
  std::vector<int> codes;
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) != 0x7F) {
      values.push_back(f8e4m3_to_float(static_cast<std::uint8_t>(code)) * 2);
      codes.push_back(code);
    }
  }
  for (const Numerics numerics : {Numerics::kExact, Numerics::kReference}) {
    const Quantized result =
        encode(fp8_spec(Grain::kChannel), matrix(1, values), numerics);
    EXPECT_EQ(bf16_to_float(result.scales.view().raw<std::uint16_t>()[0]), 2);
    EXPECT_EQ(codes_of(result), codes);
    Tensor decoded(DType::kF32, {1, result.columns});
    fp8_scheme().decode(result, decoded.view());
    EXPECT_TRUE(std::ranges::equal(decoded.view().as<float>(), values));
  }
}

TEST(Fp8Codes, SubnormalStepsRoundToEvenAndKeepTheSignOfZero) {
  // Scale 1. Steps of 2^-9 below 2^-6.
  const std::vector<float> values{
      448, 0x1p-10F, 0x1.8p-9F, 0x1.4p-8F, -0x1p-10F, -0.0F, 0x1.Fp-7F, 432};
  EXPECT_THAT(codes_of(encode(fp8_spec(Grain::kChannel), matrix(1, values))),
              ElementsAre(0x7E, 0x00, 0x02, 0x02, 0x80, 0x80, 0x08, 0x7E));
}

TEST(Fp8Codes, BlocksHaveAScaleEachAndTheLastIsCut) {
  // 130 rows: the second row of blocks has 2 rows.
  std::vector<float> values(130 * 256, 0.0F);
  values[127 * 256 + 0] = 448;    // block (0, 0)
  values[5 * 256 + 255] = -896;   // block (0, 1)
  values[128 * 256 + 127] = 224;  // block (1, 0)
  const Quantized result = encode(fp8_spec(Grain::kBlock), matrix(130, values));
  ASSERT_EQ(result.scales.shape(), (Shape{2, 2}));
  std::vector<float> scales(4);
  convert_to_float(result.scales.view(), scales);
  EXPECT_THAT(scales, ElementsAre(1, 2, 0.5F, 0x1p-7F));
  Tensor decoded(DType::kF32, {130, 256});
  fp8_scheme().decode(result, decoded.view());
  EXPECT_TRUE(std::ranges::equal(decoded.view().as<float>(), values));
}

TEST(Fp8Codes, ATileOfATensorUsesTheRangeOfTheWholeTensor) {
  EncodeOptions options;
  options.tensor_min = -896.0F;
  options.tensor_max = 100.0F;
  const Tensor weight = matrix(1, {2, -4});
  const Quantized result =
      fp8_scheme().encode(fp8_spec(Grain::kTensor), weight.view(), options);
  EXPECT_EQ(bf16_to_float(result.scales.view().raw<std::uint16_t>()[0]), 2);
  EXPECT_THAT(codes_of(result), ElementsAre(0x38, 0xC0));
}

}  // namespace
}  // namespace nibble::quant
