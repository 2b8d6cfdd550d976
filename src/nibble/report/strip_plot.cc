#include <algorithm>

#include <fmt/core.h>

#include "nibble/report/html.h"
#include "nibble/report/plots.h"
#include "nibble/report/style.h"

namespace nibble::report {
namespace {

constexpr double kLegendLine = 20;

std::string range_line(const Frame& frame,
                       std::size_t series,
                       const StripMark& mark,
                       double x) {
  return shape("line",
               {{"class",
                 fmt::format("range s{}",
                             series % static_cast<std::size_t>(kSeriesColors))},
                {"x1", coordinate(x)},
                {"x2", coordinate(x)},
                {"y1", coordinate(frame.at_y(mark.low))},
                {"y2", coordinate(frame.at_y(mark.high))}});
}

// Names of the series above the plot, as many a line as fit; the height that
// they take.
double legend(const std::vector<StripSeries>& series,
              const Frame& frame,
              std::string& drawing) {
  double x = frame.left;
  double y = 14;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const double width = 26 + 7.8 * static_cast<double>(series[i].name.size());
    if (x + width > frame.width && x > frame.left) {
      x = frame.left;
      y += kLegendLine;
    }
    drawing += marker(i, x + 5, y - 4, series[i].name);
    drawing += text_element("text",
                            {{"x", coordinate(x + 15)}, {"y", coordinate(y)}},
                            series[i].name);
    x += width;
  }
  return y + 14;
}

}  // namespace

std::string strip_plot(std::string_view id,
                       std::string_view title,
                       std::string_view description,
                       std::string_view x_label,
                       std::string_view y_label,
                       const std::vector<StripSeries>& series) {
  std::vector<double> places;
  std::vector<double> values;
  for (const StripSeries& one : series) {
    for (const StripMark& mark : one.marks) {
      places.push_back(mark.x);
      values.insert(values.end(), {mark.low, mark.middle, mark.high});
    }
  }
  Frame frame;
  frame.x = axis_around(std::string(x_label), places, false);
  frame.x.whole = true;
  frame.y = axis_around(std::string(y_label), values, true);
  std::string drawing;
  frame.top = legend(series, frame, drawing);
  frame.height = frame.top + 310;
  drawing += frame.axes();
  // Series of one place stand beside each other as far as there is room.
  const double room =
      (frame.width - frame.left - frame.right) /
      std::max(frame.x.high - frame.x.low, 1.0) /
      static_cast<double>(std::max<std::size_t>(series.size(), 1));
  const double step = std::min(room * 0.8, 9.0);
  for (std::size_t i = 0; i < series.size(); ++i) {
    const double shift = (static_cast<double>(i) -
                          (static_cast<double>(series.size()) - 1) / 2) *
                         step;
    for (const StripMark& mark : series[i].marks) {
      const double x = frame.at_x(mark.x) + shift;
      if (mark.high > mark.low) {
        drawing += range_line(frame, i, mark, x);
      }
      drawing += marker(i, x, frame.at_y(mark.middle), mark.title);
    }
  }
  return figure(id, title, description, frame.width, frame.height, drawing);
}

}  // namespace nibble::report
