#include "nibble/report/plots.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nibble::report {
namespace {

using testing::HasSubstr;
using testing::Not;

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(StripPlot, DrawsAMarkForEachAndABarForRanges) {
  const std::string text = strip_plot(
      "e",
      "Error",
      "by layer",
      "layer",
      "error",
      {{"expert", {{1, 1e-3, 2e-3, 4e-3, "one"}, {3, 1e-3, 1e-3, 1e-3, "two"}}},
       {"mlp", {{0, 5e-3, 5e-3, 5e-3, "three"}}}});
  EXPECT_EQ(occurrences(text, "class=\"range"), 1U);
  // Three marks and two in the legend.
  EXPECT_EQ(occurrences(text, "<path"), 5U);
  EXPECT_THAT(text, HasSubstr("<title>three</title>"));
  EXPECT_THAT(text, HasSubstr(">expert</text>"));
}

TEST(StripPlot, HostileNamesStayText) {
  const std::string evil = "</svg><script>alert(1)</script>";
  const std::string text = strip_plot(
      "e", evil, evil, evil, evil, {{evil, {{1, 1e-3, 1e-3, 1e-3, evil}}}});
  EXPECT_THAT(text, Not(HasSubstr("<script")));
  EXPECT_EQ(occurrences(text, "</svg>"), 1U);
}

TEST(BarChart, LongestBarFillsTheRoom) {
  const std::string text =
      bar_chart("b",
                "Size",
                "by kind",
                {{"mlp", 50, 100, "50 B"}, {"norm", 0, 0, "0 B"}});
  EXPECT_EQ(occurrences(text, "class=\"ghost\""), 1U);
  EXPECT_EQ(occurrences(text, "class=\"bar\""), 2U);
  EXPECT_THAT(text, HasSubstr("width=\"360.0\""));  // the reference
  EXPECT_THAT(text, HasSubstr("width=\"180.0\""));  // half of it
  EXPECT_THAT(text, HasSubstr(">50 B</text>"));
}

TEST(BarChart, NothingToShowIsStillAPicture) {
  EXPECT_THAT(bar_chart("b", "Size", "by kind", {}), HasSubstr("<svg"));
}

TEST(Histograms, LeaveEmptyBinsOut) {
  const std::string text =
      histograms("h",
                 "Scales",
                 "of each kind",
                 "scale",
                 {{"mlp", 1e-3, 8e-3, {1, 0, 4}}, {"expert", 2e-3, 4e-3, {7}}});
  EXPECT_EQ(occurrences(text, "<rect"), 3U);
  EXPECT_THAT(text, HasSubstr("<title>mlp: 4 scales</title>"));
}

TEST(ScatterPlot, LabelsCoverNeitherEachOtherNorMarks) {
  // Nine versions of one place: there is room for six labels beside it, the
  // others are led back to it.
  std::vector<ScatterPoint> points;
  for (int i = 0; i < 9; ++i) {
    points.push_back({"int4-g" + std::to_string(i), 4, 0.01, ""});
  }
  points.push_back({"far", 8, 0.001, ""});
  const std::string text =
      scatter_plot("s", "Quality", "by size", "bits", "KL", points);
  EXPECT_GE(occurrences(text, "class=\"lead\""), 3U);
  EXPECT_THAT(text, HasSubstr(">int4-g8</text>"));
}

TEST(ScatterPlot, ALabelAtTheRightEdgeTurnsLeft) {
  const std::string text = scatter_plot(
      "s",
      "Quality",
      "by size",
      "bits",
      "KL",
      {{"a", 4, 0.01, ""}, {"a-long-name-of-a-recipe", 16, 1, ""}});
  EXPECT_THAT(text,
              HasSubstr("text-anchor=\"end\">a-long-name-of-a-recipe</text>"));
}

}  // namespace
}  // namespace nibble::report
