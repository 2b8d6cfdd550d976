#include "nibble/quant/core/kernels/ranges.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "weight_patterns.h"

namespace nibble::quant {
namespace {

class Ranges : public ::testing::TestWithParam<Isa> {};

TEST_P(Ranges, FindTheLeastAndTheGreatestOfEachRun) {
  if (!cpu_has(GetParam())) {
    GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
  }
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const WeightPattern& pattern : weight_patterns()) {
      for (const std::int64_t length : {1, 7, 16, 31, 32, 33, 128, 255}) {
        constexpr std::size_t kRuns = 5;
        const Tensor weight = make_weight(pattern, dtype, kRuns, length);
        std::vector<float> values(kRuns * static_cast<std::size_t>(length));
        convert_to_float(weight.view(), values);
        float low[kRuns];
        float high[kRuns];
        float negative[kRuns];
        float magnitude[kRuns];
        const auto count = static_cast<std::size_t>(length);
        range_function(dtype, false, GetParam())(
            weight.view().data(), kRuns, count, low, high);
        range_function(dtype, true, GetParam())(
            weight.view().data(), kRuns, count, negative, magnitude);
        for (std::size_t r = 0; r < kRuns; ++r) {
          const auto run = std::span(values).subspan(r * count, count);
          ASSERT_EQ(low[r], *std::ranges::min_element(run)) << pattern.name;
          ASSERT_EQ(high[r], *std::ranges::max_element(run)) << pattern.name;
          ASSERT_EQ(magnitude[r], std::max(-low[r], high[r])) << pattern.name;
          ASSERT_EQ(negative[r], -magnitude[r]);
        }
      }
    }
  }
}

TEST_P(Ranges, SeeAnExtremeAtEveryPlace) {
  if (!cpu_has(GetParam())) {
    GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
  }
  constexpr std::size_t kLength = 100;
  for (std::size_t place = 0; place < kLength; ++place) {
    std::vector<std::uint16_t> weights(kLength, float_to_bf16(0.5F));
    float low = 0;
    float high = 0;
    weights[place] = float_to_bf16(-3);
    range_function(DType::kBF16, false, GetParam())(
        weights.data(), 1, kLength, &low, &high);
    EXPECT_EQ(low, -3);
    EXPECT_EQ(high, 0.5F);
    weights[place] = float_to_bf16(4);
    range_function(DType::kBF16, false, GetParam())(
        weights.data(), 1, kLength, &low, &high);
    EXPECT_EQ(low, 0.5F);
    EXPECT_EQ(high, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    Ranges,
    ::testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512),
    [](const auto& test) { return std::string(isa_name(test.param)); });

TEST(RangesOfOtherTypes, AreRefused) {
  try {
    static_cast<void>(range_function(DType::kI8, false, Isa::kPortable));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace nibble::quant
