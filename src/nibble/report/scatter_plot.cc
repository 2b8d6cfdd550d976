#include <algorithm>
#include <cmath>

#include "nibble/report/html.h"
#include "nibble/report/plots.h"

namespace nibble::report {
namespace {

constexpr double kLine = 15;        // between two labels
constexpr double kCharacter = 6.9;  // mean width of a label's letters

// Where a label stands: right of its point, or left where the plot ends.
struct Label {
  std::size_t point = 0;
  double x = 0;
  double y = 0;
  double width = 0;
  bool leftwards = false;

  [[nodiscard]] double begin() const { return leftwards ? x - width : x; }
};

bool overlap(const Label& a, const Label& b) {
  return a.begin() < b.begin() + b.width && b.begin() < a.begin() + a.width &&
         std::abs(a.y - b.y) < kLine;
}

// From the top down, each label as near to its point as those before allow.
std::vector<Label> place_labels(const std::vector<ScatterPoint>& points,
                                const Frame& frame) {
  std::vector<Label> wanted;
  for (std::size_t i = 0; i < points.size(); ++i) {
    Label label;
    label.point = i;
    label.width = kCharacter * static_cast<double>(points[i].label.size());
    const double x = frame.at_x(points[i].x);
    label.leftwards = x + 12 + label.width > frame.width;
    label.x = label.leftwards ? x - 10 : x + 10;
    label.y = frame.at_y(points[i].y) + 4;
    wanted.push_back(label);
  }
  std::stable_sort(wanted.begin(),
                   wanted.end(),
                   [](const Label& a, const Label& b) { return a.y < b.y; });
  std::vector<Label> placed;
  for (Label label : wanted) {
    for (std::size_t moved = 0; moved <= placed.size(); ++moved) {
      const auto other =
          std::find_if(placed.begin(), placed.end(), [&](const Label& one) {
            return overlap(one, label);
          });
      if (other == placed.end()) {
        break;
      }
      label.y = other->y + kLine;
    }
    placed.push_back(label);
  }
  return placed;
}

}  // namespace

std::string scatter_plot(std::string_view id,
                         std::string_view title,
                         std::string_view description,
                         std::string_view x_label,
                         std::string_view y_label,
                         const std::vector<ScatterPoint>& points) {
  std::vector<double> xs;
  std::vector<double> ys;
  for (const ScatterPoint& point : points) {
    xs.push_back(point.x);
    ys.push_back(point.y);
  }
  Frame frame;
  frame.height = 360;
  frame.x = axis_around(std::string(x_label), xs, false);
  frame.y = axis_around(std::string(y_label), ys, true);
  std::string drawing = frame.axes();
  for (const Label& label : place_labels(points, frame)) {
    const ScatterPoint& point = points[label.point];
    const double x = frame.at_x(point.x);
    const double y = frame.at_y(point.y);
    if (std::abs(label.y - 4 - y) > kLine / 2) {
      drawing += shape("line",
                       {{"class", "lead"},
                        {"x1", coordinate(x)},
                        {"y1", coordinate(y)},
                        {"x2", coordinate(label.x)},
                        {"y2", coordinate(label.y - 4)}});
    }
    drawing += marker(label.point, x, y, point.title);
    drawing +=
        text_element("text",
                     {{"x", coordinate(label.x)},
                      {"y", coordinate(label.y)},
                      {"text-anchor", label.leftwards ? "end" : "start"}},
                     point.label);
  }
  return figure(id, title, description, frame.width, frame.height, drawing);
}

}  // namespace nibble::report
