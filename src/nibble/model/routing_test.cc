#include "nibble/model/routing.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace nibble::model {
namespace {

float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
}

TEST(Route, GroupsTokensByTheirBestExpert) {
  const std::vector<float> logits{1,
                                  3,
                                  2,  //
                                  5,
                                  4,
                                  0,  //
                                  0,
                                  9,
                                  1};
  const auto routes = route(logits, 3, 1);
  ASSERT_EQ(routes.size(), 3U);
  EXPECT_EQ(routes[0].rows, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(routes[1].rows, (std::vector<std::int32_t>{0, 2}));
  EXPECT_TRUE(routes[2].rows.empty());
  EXPECT_FLOAT_EQ(routes[0].scores[0], sigmoid(5));
  EXPECT_FLOAT_EQ(routes[1].scores[0], sigmoid(3));
  EXPECT_FLOAT_EQ(routes[1].scores[1], sigmoid(9));
}

TEST(Route, ScoresOfSeveralExpertsAreNotNormalized) {
  const auto routes = route(std::vector<float>{1, -2, 3}, 3, 2);
  EXPECT_FLOAT_EQ(routes[0].scores.at(0), sigmoid(1));
  EXPECT_TRUE(routes[1].rows.empty());
  EXPECT_FLOAT_EQ(routes[2].scores.at(0), sigmoid(3));
}

TEST(Route, TheFirstOfEqualsWins) {
  EXPECT_EQ(route(std::vector<float>{2, 2, 2}, 3, 1)[0].rows.size(), 1U);
}

TEST(Route, NotANumberLosesToEveryNumber) {
  const auto routes = route(std::vector<float>{NAN, -9, NAN}, 3, 1);
  EXPECT_EQ(routes[1].rows.size(), 1U);
}

}  // namespace
}  // namespace nibble::model
