#include "nibble/quant/schemes/common/fp8_grid.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

float on_grid(float value, float scale) {
  float rounded = 0;
  round_to_fp8_grid({&value, 1}, scale, {&rounded, 1});
  return rounded;
}

TEST(Fp8Grid, RoundsAsTheConversionDoes) {
  // Every 4096th float of both signs, which covers all binades and ties.
  for (std::uint32_t bits = 0; bits < 0x7F800000u; bits += 0x1000u) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const float value = std::bit_cast<float>(bits | sign);
      ASSERT_EQ(on_grid(value, 1.0F), f8e4m3_to_float(float_to_f8e4m3(value)))
          << value;
    }
  }
}

TEST(Fp8Grid, TiesGoToEvenAndTheirNeighboursDoNot) {
  for (int code = 0; code < 0x7E; ++code) {
    const float low = f8e4m3_to_float(static_cast<std::uint8_t>(code));
    const float high = f8e4m3_to_float(static_cast<std::uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(on_grid(middle, 1.0F), code % 2 == 0 ? low : high);
    EXPECT_EQ(on_grid(std::nextafterf(middle, 0.0F), 1.0F), low);
    EXPECT_EQ(on_grid(std::nextafterf(middle, 1e9F), 1.0F), high);
  }
}

TEST(Fp8Grid, SaturatesAndKeepsNan) {
  EXPECT_EQ(on_grid(1e30F, 1.0F), 448.0F);
  EXPECT_EQ(on_grid(-std::numeric_limits<float>::infinity(), 0.5F), -224.0F);
  EXPECT_TRUE(
      std::isnan(on_grid(std::numeric_limits<float>::quiet_NaN(), 1.0F)));
}

TEST(Fp8Grid, AbsoluteMaximumSeesSignsAndNan) {
  const std::vector<float> values = {1.0F, -3.0F, 2.0F};
  EXPECT_EQ(absolute_maximum(values), 3.0F);
  EXPECT_EQ(absolute_maximum({}), 0.0F);
  const std::vector<float> bad = {1.0F,
                                  std::numeric_limits<float>::quiet_NaN(),
                                  std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(std::isnan(absolute_maximum(bad)));
}

TEST(Fp8Grid, GroupsHaveScalesOfTheirOwn) {
  NumberSpec input;
  input.floating = true;
  input.grain = Grain::kGroup;
  input.group = 2;
  const std::vector<float> token = {448.0F, 1.03F, 0.5F, 0.26F, 0.0F};
  std::vector<float> rounded(token.size());
  round_token_to_fp8(token, input, {}, rounded);
  EXPECT_EQ(rounded[1], 1.0F);
  // 0.26 / (0.5 / 448) = 232.96 lies between 224 and 240.
  EXPECT_FLOAT_EQ(rounded[3], 240 * (0.5F / 448));
  EXPECT_EQ(rounded[4], 0.0F);
}

TEST(Fp8Grid, AStaticScaleIsUsedAsItIs) {
  NumberSpec input;
  input.floating = true;
  input.grain = Grain::kTensor;
  const std::vector<float> token = {3.0F, 100.0F};
  std::vector<float> rounded(token.size());
  round_token_to_fp8(token, input, 0.1F, rounded);
  EXPECT_FLOAT_EQ(rounded[0], 3.0F);   // 30 is on the grid
  EXPECT_FLOAT_EQ(rounded[1], 44.8F);  // 1000 saturates
}

}  // namespace
}  // namespace nibble::quant
