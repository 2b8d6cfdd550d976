#include "nibble/report/scale_counts.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace nibble::report {
namespace {

TEST(ScaleCounts, FindsRangeAndMedian) {
  ScaleCounts counts;
  counts.add(std::vector<float>{0.001F, 0.002F, 0.002F, 0.004F});
  EXPECT_EQ(counts.count(), 4U);
  EXPECT_FLOAT_EQ(counts.smallest(), 0.001F);
  EXPECT_FLOAT_EQ(counts.largest(), 0.004F);
  EXPECT_NEAR(std::log2(counts.median()), std::log2(0.002), 1.0 / 8);
}

TEST(ScaleCounts, SetsWhatIsNoScaleAside) {
  ScaleCounts counts;
  counts.add(std::vector<float>{0.0F,
                                -1.0F,
                                std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN(),
                                1.0F});
  EXPECT_EQ(counts.count(), 1U);
  EXPECT_EQ(counts.unusable(), 4U);
}

TEST(ScaleCounts, TakesEveryPositiveFloat) {
  ScaleCounts counts;
  counts.add(std::vector<float>{std::numeric_limits<float>::denorm_min(),
                                std::numeric_limits<float>::max()});
  EXPECT_EQ(counts.count(), 2U);
  const Histogram histogram = counts.histogram(64);
  EXPECT_LE(histogram.counts.size(), 64U);
  EXPECT_EQ(histogram.counts.front(), 1U);
  EXPECT_EQ(histogram.counts.back(), 1U);
}

TEST(ScaleCounts, PartsAddUpInAnyOrder) {
  const std::vector<float> a = {0.5F, 1.0F, 3.0F};
  const std::vector<float> b = {0.25F, 0.0F};
  ScaleCounts first;
  first.add(a);
  ScaleCounts second;
  second.add(b);
  ScaleCounts sum = second;
  sum.add(first);
  first.add(second);
  EXPECT_EQ(sum.count(), 4U);
  EXPECT_EQ(first.count(), 4U);
  EXPECT_EQ(sum.unusable(), 1U);
  EXPECT_EQ(first.smallest(), sum.smallest());
  EXPECT_EQ(first.histogram(64).counts, sum.histogram(64).counts);
}

TEST(ScaleCounts, NothingHasNoHistogram) {
  const ScaleCounts counts;
  EXPECT_TRUE(counts.histogram(64).counts.empty());
  EXPECT_EQ(counts.median(), 0);
}

}  // namespace
}  // namespace nibble::report
