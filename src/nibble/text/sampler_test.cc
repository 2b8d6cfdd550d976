#include "nibble/text/sampler.h"

#include <cmath>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble::text {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// How often each id comes in 20,000 draws.
std::map<std::int32_t, double> shares(
    SamplingOptions options,
    const std::vector<float>& logits,
    const std::vector<std::int32_t>& history = {}) {
  Sampler sampler(options);
  std::map<std::int32_t, double> found;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    found[sampler.sample(logits, history)] += 1.0 / kDraws;
  }
  return found;
}

SamplingOptions warm() {
  SamplingOptions options;
  options.temperature = 1;
  options.seed = 1;
  return options;
}

// Probabilities 0.5, 0.25, 0.125, 0.125.
const std::vector<float> kHalves = {std::log(4.0F), std::log(2.0F), 0, 0};

TEST(Random, GivesTheNumbersOfSplitMix64) {
  Random random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317U);
  EXPECT_EQ(random.next(), 3203168211198807973U);
  EXPECT_EQ(random.next(), 9817491932198370423U);
}

TEST(Random, UniformStaysBelowOne) {
  Random random(3);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double value = random.uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOfEquals) {
  Sampler sampler(SamplingOptions{});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2}, {}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 3}, {}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, -1}, {}), 1);
}

TEST(Sampler, DrawsByProbability) {
  const auto found = shares(warm(), kHalves);
  EXPECT_NEAR(found.at(0), 0.5, 0.015);
  EXPECT_NEAR(found.at(1), 0.25, 0.015);
  EXPECT_NEAR(found.at(2), 0.125, 0.015);
  EXPECT_NEAR(found.at(3), 0.125, 0.015);
}

TEST(Sampler, TemperatureFlattens) {
  SamplingOptions options = warm();
  options.temperature = 2;  // weights 2, sqrt 2, 1, 1
  EXPECT_NEAR(shares(options, kHalves).at(0), 2 / (4 + std::sqrt(2.0)), 0.015);
}

TEST(Sampler, TopKKeepsTheMostLikely) {
  SamplingOptions options = warm();
  options.top_k = 3;  // of the equal ids 2 and 3 the lower
  const auto found = shares(options, kHalves);
  EXPECT_EQ(found.size(), 3U);
  EXPECT_NEAR(found.at(0), 0.5 / 0.875, 0.015);
  EXPECT_FALSE(found.contains(3));
  options.top_k = 100;
  EXPECT_EQ(shares(options, kHalves).size(), 4U);
}

TEST(Sampler, TopPKeepsTheSmallestSufficientSet) {
  SamplingOptions options = warm();
  options.top_p = 0.7;
  EXPECT_EQ(shares(options, kHalves).size(), 2U);
  options.top_p = 0.76;
  EXPECT_EQ(shares(options, kHalves).size(), 3U);
  options.top_p = 1e-9;  // never nothing
  EXPECT_EQ(shares(options, kHalves).size(), 1U);
}

TEST(Sampler, MinPIsMeasuredByTheMostLikely) {
  SamplingOptions options = warm();
  options.min_p = 0.3;
  EXPECT_EQ(shares(options, kHalves).size(), 2U);
  options.min_p = 0.2;
  EXPECT_EQ(shares(options, kHalves).size(), 4U);
}

TEST(Sampler, RepetitionPenaltyCountsAnIdOnce) {
  SamplingOptions options;
  options.repetition_penalty = 2;
  Sampler sampler(options);
  const std::vector<std::int32_t> history = {0, 0, 0, 77, -1};
  EXPECT_EQ(sampler.sample(std::vector<float>{3, 1}, history), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{3, 2}, history), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-1, -1.5}, history), 1);
}

TEST(Sampler, TheSameSeedGivesTheSameTokens) {
  SamplingOptions options = warm();
  const std::vector<float> logits(50, 0);
  const auto run = [&] {
    Sampler sampler(options);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 8; ++i) {
      ids.push_back(sampler.sample(logits, {}));
    }
    return ids;
  };
  const auto first = run();
  EXPECT_EQ(run(), first);
  // Recorded: a change would change every seeded text.
  EXPECT_EQ(first, (std::vector<std::int32_t>{28, 37, 48, 22, 22, 38, 43, 26}));
  options.seed = 2;
  EXPECT_NE(run(), first);
}

TEST(Sampler, BrokenLogitsAreErrors) {
  for (const double temperature : {0.0, 1.0}) {
    SamplingOptions options;
    options.temperature = temperature;
    Sampler sampler(options);
    expect_error(ErrorCode::kCorruptData, "found nan for token 1", [&] {
      static_cast<void>(sampler.sample(std::vector<float>{0, kNan}, {}));
    });
    expect_error(ErrorCode::kCorruptData, "found inf for token 0", [&] {
      static_cast<void>(sampler.sample(std::vector<float>{kInfinity, 0}, {}));
    });
    expect_error(ErrorCode::kCorruptData, "found no finite one", [&] {
      static_cast<void>(sampler.sample(std::vector<float>{-kInfinity}, {}));
    });
  }
}

TEST(Sampler, OptionsOutOfRangeAreRefusedByName) {
  const auto refuses = [](const char* name, auto set) {
    SamplingOptions options;
    set(options);
    expect_error(ErrorCode::kInvalidArgument, name, [&] { Sampler{options}; });
  };
  using Options = SamplingOptions;
  refuses("temperature", [](Options& o) { o.temperature = -1; });
  refuses("temperature", [](Options& o) { o.temperature = kNan; });
  refuses("temperature", [](Options& o) { o.temperature = kInfinity; });
  refuses("top-k", [](Options& o) { o.top_k = -1; });
  refuses("top-p", [](Options& o) { o.top_p = 0; });
  refuses("top-p", [](Options& o) { o.top_p = 1.1; });
  refuses("min-p", [](Options& o) { o.min_p = -0.1; });
  refuses("min-p", [](Options& o) { o.min_p = kNan; });
  refuses("repetition penalty", [](Options& o) { o.repetition_penalty = 0; });
}

}  // namespace
}  // namespace nibble::text
