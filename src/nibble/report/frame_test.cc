#include "nibble/report/frame.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nibble::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> labels(const Axis& axis, int wanted) {
  std::vector<std::string> result;
  for (const Tick& tick : ticks_of(axis, wanted)) {
    result.push_back(tick.label);
  }
  return result;
}

TEST(Ticks, AreRoundNumbers) {
  EXPECT_THAT(labels({"", 0, 10, false}, 5),
              ElementsAre("0", "2", "4", "6", "8", "10"));
  EXPECT_THAT(labels({"", 3.9, 8.3, false}, 5),
              ElementsAre("4", "5", "6", "7", "8"));
  EXPECT_THAT(labels({"", -0.04, 0.04, false}, 4),
              ElementsAre("-0.04", "-0.02", "0", "0.02", "0.04"));
}

TEST(Ticks, OfCountsAreWhole) {
  Axis layers{"", -0.2, 3.2, false, true};
  EXPECT_THAT(labels(layers, 8), ElementsAre("0", "1", "2", "3"));
}

TEST(Ticks, OfLessThanADecadeAreRoundNumbers) {
  EXPECT_THAT(labels({"", 0.009, 0.016, true}, 5),
              ElementsAre("0.01", "0.012", "0.014", "0.016"));
}

TEST(Ticks, OfALogarithmAreDecades) {
  EXPECT_THAT(labels({"", 1e-5, 1e-1, true}, 6),
              ElementsAre("1e-5", "1e-4", "0.001", "0.01", "0.1"));
  EXPECT_THAT(labels({"", 0.009, 0.3, true}, 6),
              ElementsAre("0.01", "0.02", "0.05", "0.1", "0.2"));
  // As many decades as there are labels for, not hundreds.
  EXPECT_LE(ticks_of({"", 1e-30, 1e30, true}, 6).size(), 8U);
}

TEST(AxisAround, HoldsAllValuesWithRoom) {
  const Axis linear = axis_around("x", {2, 4}, false);
  EXPECT_LT(linear.low, 2);
  EXPECT_GT(linear.high, 4);
  const Axis logarithm = axis_around("y", {1e-3, 1e-1}, true);
  EXPECT_GT(logarithm.low, 0);
  EXPECT_LT(logarithm.low, 1e-3);
}

TEST(AxisAround, OneValueOrNoneStillMakesAPlot) {
  for (const bool logarithmic : {false, true}) {
    for (const std::vector<double>& values :
         {std::vector<double>{}, std::vector<double>{3, 3}}) {
      const Axis axis = axis_around("x", values, logarithmic);
      EXPECT_LT(axis.low, axis.high);
      EXPECT_FALSE(ticks_of(axis, 5).empty());
    }
  }
  const Axis zero = axis_around("x", {0}, false);
  EXPECT_LT(zero.low, zero.high);
}

TEST(Frame, MapsTheEndsOfItsAxesToItsSides) {
  Frame frame;
  frame.x = {"x", 0, 10, false};
  frame.y = {"y", 0.1, 10, true};
  EXPECT_DOUBLE_EQ(frame.at_x(0), frame.left);
  EXPECT_DOUBLE_EQ(frame.at_x(10), frame.width - frame.right);
  EXPECT_DOUBLE_EQ(frame.at_y(0.1), frame.height - frame.bottom);
  EXPECT_NEAR(
      frame.at_y(1), (frame.height - frame.bottom + frame.top) / 2, 1e-9);
}

TEST(Figure, IsNamedForThoseWhoDoNotSeeIt) {
  const std::string text =
      figure("a", "Sizes <1>", "what it shows", 10, 20, "");
  EXPECT_THAT(text, HasSubstr("role=\"img\""));
  EXPECT_THAT(text, HasSubstr("aria-labelledby=\"a-title a-desc\""));
  EXPECT_THAT(text, HasSubstr("<title id=\"a-title\">Sizes &lt;1&gt;</title>"));
  EXPECT_THAT(text, HasSubstr("<desc id=\"a-desc\">what it shows</desc>"));
}

}  // namespace
}  // namespace nibble::report
