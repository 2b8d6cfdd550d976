#include "nibble/text/likelihood.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble::text {
namespace {

using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Likelihood, IsTheLogOfTheSoftmax) {
  const Floats logits = {0, std::log(3.0F)};
  EXPECT_NEAR(negative_log_likelihood(logits, 0), std::log(4.0), 1e-6);
  EXPECT_NEAR(negative_log_likelihood(logits, 1), std::log(4.0 / 3), 1e-6);
}

TEST(Likelihood, LargeLogitsDoNotOverflow) {
  EXPECT_NEAR(
      negative_log_likelihood(Floats{3e38F, 3e38F}, 0), std::log(2.0), 1e-6);
  EXPECT_NEAR(negative_log_likelihood(Floats{0, -500}, 1), 500, 1e-3);
}

TEST(Divergence, IsZeroForEqualDistributions) {
  const Floats logits = {0.1F, -2, 5};
  EXPECT_EQ(divergence(logits, logits), 0);
  EXPECT_NEAR(divergence(logits, Floats{1.1F, -1, 6}), 0, 1e-6);
}

TEST(Divergence, WeighsByTheReference) {
  // p = (3/4, 1/4), q = (1/2, 1/2).
  const Floats p = {std::log(3.0F), 0};
  const Floats q = {0, 0};
  EXPECT_NEAR(
      divergence(p, q), 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-6);
  EXPECT_NEAR(
      divergence(q, p), 0.5 * std::log(2.0 / 3) + 0.5 * std::log(2.0), 1e-6);
}

TEST(Divergence, IgnoresTokensTheReferenceForbids) {
  EXPECT_NEAR(
      divergence(Floats{0, -kInfinity}, Floats{0, 0}), std::log(2.0), 1e-6);
  EXPECT_EQ(divergence(Floats{0, -kInfinity}, Floats{0, -kInfinity}), 0);
}

TEST(MostLikely, TakesTheLowestOfEquals) {
  EXPECT_EQ(most_likely(Floats{1, 2, 2}), 1);
}

TEST(Likelihood, BrokenLogitsAreErrors) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  expect_error(ErrorCode::kCorruptData, "found NaN for token 1", [&] {
    static_cast<void>(negative_log_likelihood(Floats{0, nan}, 0));
  });
  expect_error(ErrorCode::kCorruptData, "found NaN for token 0", [&] {
    static_cast<void>(divergence(Floats{nan, 0}, Floats{0, 0}));
  });
  expect_error(ErrorCode::kCorruptData, "found inf as the largest", [&] {
    static_cast<void>(most_likely(Floats{kInfinity, 0}));
  });
  expect_error(ErrorCode::kInvalidArgument, "expected the reference's 2", [&] {
    static_cast<void>(divergence(Floats{0, 0}, Floats{0}));
  });
}

TEST(Quantile, InterpolatesBetweenNeighbours) {
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_EQ(quantile({1, 2}, 0), 1);
  EXPECT_EQ(quantile({1, 2}, 1), 2);
  EXPECT_NEAR(quantile({0, 10}, 0.99), 9.9, 1e-12);
  EXPECT_EQ(quantile({7}, 0.99), 7);
}

}  // namespace
}  // namespace nibble::text
