#include "nibble/quant/schemes/common/input_loops.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nibble/quant/schemes/common/fp8_grid.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

class InputLoops : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!cpu_has(GetParam())) {
      GTEST_SKIP() << "this processor lacks " << isa_name(GetParam());
    }
  }

  [[nodiscard]] static const quant::InputLoops& loops() {
    return input_loops(GetParam());
  }

  // All values rounded to E4M3 at once, so that vectors are used.
  static std::vector<float> on_grid(const std::vector<float>& values) {
    std::vector<float> rounded(values.size());
    loops().round_fp8(values.data(),
                      static_cast<std::int64_t>(values.size()),
                      1.0F,
                      rounded.data());
    return rounded;
  }
};

INSTANTIATE_TEST_SUITE_P(
    EachIsa,
    InputLoops,
    testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512),
    [](const auto& tested) { return std::string(isa_name(tested.param)); });

TEST_P(InputLoops, Fp8RoundsAsTheConversionDoes) {
  // Every 4096th float of both signs, which covers all binades and ties.
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0x7F800000u; bits += 0x1000u) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(-values.back());
  }
  const std::vector<float> rounded = on_grid(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(rounded[i], f8e4m3_to_float(float_to_f8e4m3(values[i])))
        << values[i];
  }
}

TEST_P(InputLoops, Fp8TiesGoToEvenAndTheirNeighboursDoNot) {
  for (int code = 0; code < 0x7E; ++code) {
    const float low = f8e4m3_to_float(static_cast<std::uint8_t>(code));
    const float high = f8e4m3_to_float(static_cast<std::uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    const std::vector<float> rounded = on_grid(
        {middle, std::nextafterf(middle, 0.0F), std::nextafterf(middle, 1e9F)});
    EXPECT_EQ(rounded[0], code % 2 == 0 ? low : high);
    EXPECT_EQ(rounded[1], low);
    EXPECT_EQ(rounded[2], high);
  }
}

TEST_P(InputLoops, Fp8SaturatesAndKeepsNan) {
  const std::vector<float> rounded =
      on_grid({1e30F,
               -std::numeric_limits<float>::infinity(),
               std::numeric_limits<float>::quiet_NaN()});
  EXPECT_EQ(rounded[0], 448.0F);
  EXPECT_EQ(rounded[1], -448.0F);
  EXPECT_TRUE(std::isnan(rounded[2]));
}

TEST_P(InputLoops, AbsoluteMaximumSeesSignsAndNan) {
  std::vector<float> values(37, 1.0F);
  values[20] = -3.0F;
  values[36] = 2.0F;
  EXPECT_EQ(loops().absolute_maximum(values.data(), 37), 3.0F);
  EXPECT_EQ(loops().absolute_maximum(values.data(), 20), 1.0F);
  EXPECT_EQ(loops().absolute_maximum(values.data(), 0), 0.0F);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[4] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(loops().absolute_maximum(values.data(), 37)));
}

TEST_P(InputLoops, Codes16AreTheNearestIntegers) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> any(-32767.0F, 32767.0F);
  std::vector<float> values = {0.5F, 1.5F, -0.5F, -2.5F, 32767.0F, -32767.0F};
  for (int i = 0; i < 100; ++i) {
    values.push_back(any(random));
  }
  std::vector<std::int16_t> codes(values.size());
  loops().codes16(values.data(),
                  static_cast<std::int64_t>(values.size()),
                  1.0F,
                  codes.data());
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(static_cast<float>(codes[i]), std::nearbyintf(values[i]));
    sum += codes[i];
  }
  EXPECT_EQ(loops().sum(codes.data(), static_cast<std::int64_t>(codes.size())),
            sum);
}

TEST_P(InputLoops, Codes8SaturateAndRoundHalfToEven) {
  const std::vector<float> values = {
      0.25F, 0.75F, 1.25F, -0.25F, 63.5F, 63.7F, 1e9F, -63.9F, -64.0F, -1e9F};
  const std::vector<int> expected = {
      0, 2, 2, 0, 127, 127, 127, -128, -128, -128};
  std::vector<std::int16_t> codes(values.size());
  loops().codes8(values.data(), 10, 0.5F, codes.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(codes[i], expected[i]) << values[i];
  }
}

TEST_P(InputLoops, GroupsOfATokenHaveScalesOfTheirOwn) {
  NumberSpec input;
  input.floating = true;
  input.grain = Grain::kGroup;
  input.group = 2;
  const std::vector<float> token = {448.0F, 1.03F, 0.5F, 0.26F, 0.0F};
  std::vector<float> rounded(token.size());
  round_token_to_fp8(loops(), token, input, {}, rounded);
  EXPECT_EQ(rounded[1], 1.0F);
  // 0.26 / (0.5 / 448) = 232.96 lies between 224 and 240.
  EXPECT_FLOAT_EQ(rounded[3], 240 * (0.5F / 448));
  EXPECT_EQ(rounded[4], 0.0F);
}

TEST_P(InputLoops, AStaticScaleIsUsedAsItIs) {
  NumberSpec input;
  input.floating = true;
  input.grain = Grain::kTensor;
  const std::vector<float> token = {3.0F, 100.0F};
  std::vector<float> rounded(token.size());
  round_token_to_fp8(loops(), token, input, 0.1F, rounded);
  EXPECT_FLOAT_EQ(rounded[0], 3.0F);   // 30 is on the grid
  EXPECT_FLOAT_EQ(rounded[1], 44.8F);  // 1000 saturates
}

}  // namespace
}  // namespace nibble::quant
