#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/report/frame.h"

namespace nibble::report {

// Each plot is markup of a <figure>; id must be unique in the page, title and
// description are for those who do not see it. Names are escaped.

// Something measured at a place: the range of several, and their middle.
struct StripMark {
  double x = 0;
  double low = 0;
  double middle = 0;
  double high = 0;
  std::string title;  // shown when pointed at
};

struct StripSeries {
  std::string name;
  std::vector<StripMark> marks;
};

// Positive values by place on a logarithmic scale, a colour and a shape for
// each series, ranges as thin bars.
[[nodiscard]] std::string strip_plot(std::string_view id,
                                     std::string_view title,
                                     std::string_view description,
                                     std::string_view x_label,
                                     std::string_view y_label,
                                     const std::vector<StripSeries>& series);

// A horizontal bar before a longer, pale one that it is compared with.
struct Bar {
  std::string label;
  double value = 0;
  double reference = 0;  // 0 = none
  std::string text;      // stands behind the bar
};

[[nodiscard]] std::string bar_chart(std::string_view id,
                                    std::string_view title,
                                    std::string_view description,
                                    const std::vector<Bar>& bars);

// Counts of values in bins of equal width on a logarithmic scale.
struct Histogram {
  std::string label;
  double low = 0;   // of the first bin
  double high = 0;  // of the last
  std::vector<std::uint64_t> counts;
};

// One under the other, on a common scale, each as high as its fullest bin.
[[nodiscard]] std::string histograms(std::string_view id,
                                     std::string_view title,
                                     std::string_view description,
                                     std::string_view x_label,
                                     const std::vector<Histogram>& all);

struct ScatterPoint {
  std::string label;
  double x = 0;
  double y = 0;
  std::string title;
};

// Points with their names beside them; y is logarithmic.
[[nodiscard]] std::string scatter_plot(std::string_view id,
                                       std::string_view title,
                                       std::string_view description,
                                       std::string_view x_label,
                                       std::string_view y_label,
                                       const std::vector<ScatterPoint>& points);

}  // namespace nibble::report
