#include <algorithm>

#include <fmt/core.h>

#include "nibble/report/html.h"
#include "nibble/report/plots.h"

namespace nibble::report {
namespace {

constexpr double kPlotHeight = 62;

std::string bars(const Histogram& histogram,
                 const Frame& frame,
                 double bottom) {
  const std::uint64_t most =
      *std::max_element(histogram.counts.begin(), histogram.counts.end());
  // Bins are equal on the logarithmic scale.
  const double left = frame.at_x(histogram.low);
  const double width = (frame.at_x(histogram.high) - left) /
                       static_cast<double>(histogram.counts.size());
  std::string drawing;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    if (histogram.counts[i] == 0) {
      continue;
    }
    const double height =
        std::max(kPlotHeight * static_cast<double>(histogram.counts[i]) /
                     static_cast<double>(most),
                 1.0);
    drawing +=
        element("rect",
                {{"class", "bar"},
                 {"x", coordinate(left + width * static_cast<double>(i))},
                 {"y", coordinate(bottom - height)},
                 {"width", coordinate(std::max(width - 1, 1.0))},
                 {"height", coordinate(height)}},
                text_element("title",
                             {},
                             fmt::format("{}: {} scales",
                                         histogram.label,
                                         histogram.counts[i])));
  }
  return drawing;
}

}  // namespace

std::string histograms(std::string_view id,
                       std::string_view title,
                       std::string_view description,
                       std::string_view x_label,
                       const std::vector<Histogram>& all) {
  constexpr double kGap = 26;
  Frame frame;
  frame.left = 28;
  std::vector<double> ends;
  for (const Histogram& histogram : all) {
    ends.insert(ends.end(), {histogram.low, histogram.high});
  }
  frame.x = axis_around(std::string(x_label), ends, true);
  frame.height = frame.top +
                 static_cast<double>(all.size()) * (kPlotHeight + kGap) +
                 frame.bottom;
  std::string drawing;
  for (const Tick& tick : ticks_of(frame.x, 8)) {
    const std::string x = coordinate(frame.at_x(tick.value));
    drawing += shape("line",
                     {{"class", "grid"},
                      {"x1", x},
                      {"x2", x},
                      {"y1", coordinate(frame.top)},
                      {"y2", coordinate(frame.height - frame.bottom)}});
    drawing +=
        text_element("text",
                     {{"class", "soft"},
                      {"x", x},
                      {"y", coordinate(frame.height - frame.bottom + 18)},
                      {"text-anchor", "middle"}},
                     tick.label);
  }
  double y = frame.top;
  for (const Histogram& histogram : all) {
    drawing +=
        text_element("text",
                     {{"x", coordinate(frame.left)}, {"y", coordinate(y + 14)}},
                     histogram.label);
    y += kGap + kPlotHeight;
    drawing += bars(histogram, frame, y);
    drawing += shape("line",
                     {{"class", "axis"},
                      {"x1", coordinate(frame.left)},
                      {"x2", coordinate(frame.width - frame.right)},
                      {"y1", coordinate(y)},
                      {"y2", coordinate(y)}});
  }
  drawing += text_element("text",
                          {{"x", coordinate(frame.width / 2)},
                           {"y", coordinate(frame.height - 8)},
                           {"text-anchor", "middle"}},
                          x_label);
  return figure(id, title, description, frame.width, frame.height, drawing);
}

}  // namespace nibble::report
