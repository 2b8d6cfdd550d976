#include <algorithm>

#include "nibble/report/html.h"
#include "nibble/report/plots.h"

namespace nibble::report {
namespace {

constexpr double kLine = 15;        // height of a label
constexpr double kCharacter = 7.4;  // width of a letter, on the safe side
constexpr double kMark = 6;         // half the size of a mark, with air

struct Box {
  double left = 0;
  double right = 0;
  double top = 0;
  double bottom = 0;
};

bool overlap(const Box& a, const Box& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom &&
         b.top < a.bottom;
}

// Where a label stands: its baseline, and the side of its point.
struct Label {
  double x = 0;
  double y = 0;
  bool leftwards = false;
  bool far = false;  // a line leads back to the point

  [[nodiscard]] Box box(double width) const {
    const double left = leftwards ? x - width : x;
    return {left, left + width, y - 11, y - 11 + kLine};
  }
};

// Places beside a point, the best first; then further and further away.
std::vector<Label> candidates(double x, double y) {
  std::vector<Label> all = {{x + 10, y + 4, false, false},
                            {x - 10, y + 4, true, false},
                            {x + 7, y - 8, false, false},
                            {x + 7, y + 17, false, false},
                            {x - 7, y - 8, true, false},
                            {x - 7, y + 17, true, false}};
  for (double away = 2 * kLine; away < 20 * kLine; away += kLine / 2) {
    for (const double down : {away, -away}) {
      all.push_back({x + 14, y + 4 + down, false, true});
      all.push_back({x - 14, y + 4 + down, true, true});
    }
  }
  return all;
}

// Labels that cover neither each other nor a mark, as far as there is room.
std::vector<Label> place_labels(const std::vector<ScatterPoint>& points,
                                const Frame& frame) {
  std::vector<Box> taken;
  for (const ScatterPoint& point : points) {
    const double x = frame.at_x(point.x);
    const double y = frame.at_y(point.y);
    taken.push_back({x - kMark, x + kMark, y - kMark, y + kMark});
  }
  std::vector<Label> placed;
  for (const ScatterPoint& point : points) {
    const double width = kCharacter * static_cast<double>(point.label.size());
    const auto all = candidates(frame.at_x(point.x), frame.at_y(point.y));
    const auto free = [&](const Label& label) {
      const Box box = label.box(width);
      return box.left >= frame.left && box.right <= frame.width &&
             box.top >= 0 && box.bottom <= frame.height - frame.bottom &&
             std::none_of(taken.begin(), taken.end(), [&](const Box& other) {
               return overlap(box, other);
             });
    };
    const auto found = std::find_if(all.begin(), all.end(), free);
    placed.push_back(found != all.end() ? *found : all.front());
    taken.push_back(placed.back().box(width));
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
  const std::vector<Label> labels = place_labels(points, frame);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Label& label = labels[i];
    const double x = frame.at_x(points[i].x);
    const double y = frame.at_y(points[i].y);
    if (label.far) {
      drawing += shape("line",
                       {{"class", "lead"},
                        {"x1", coordinate(x)},
                        {"y1", coordinate(y)},
                        {"x2", coordinate(label.x)},
                        {"y2", coordinate(label.y - 4)}});
    }
    drawing += marker(i, x, y, points[i].title);
    drawing +=
        text_element("text",
                     {{"x", coordinate(label.x)},
                      {"y", coordinate(label.y)},
                      {"text-anchor", label.leftwards ? "end" : "start"}},
                     points[i].label);
  }
  return figure(id, title, description, frame.width, frame.height, drawing);
}

}  // namespace nibble::report
