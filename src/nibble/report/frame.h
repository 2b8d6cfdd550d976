#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nibble::report {

// Values along one side of a plot. Logarithmic ones are positive.
struct Axis {
  std::string label;
  double low = 0;
  double high = 1;
  bool logarithmic = false;
  bool whole = false;  // counts: ticks are whole numbers
};

struct Tick {
  double value = 0;
  std::string label;
};

// Round values inside of the axis: powers of ten, or multiples of 1, 2 or 5
// of one; about `wanted` of them.
[[nodiscard]] std::vector<Tick> ticks_of(const Axis& axis, int wanted);

// An axis that holds all values with room beside them; of equal or no values
// one around them.
[[nodiscard]] Axis axis_around(std::string label,
                               const std::vector<double>& values,
                               bool logarithmic);

// The rectangle of a plot inside of its drawing, in units of the viewBox.
struct Frame {
  double width = 640;
  double height = 320;
  double left = 72;
  double right = 16;
  double top = 12;
  double bottom = 46;
  Axis x;
  Axis y;

  [[nodiscard]] double at_x(double value) const;
  [[nodiscard]] double at_y(double value) const;
  // Lines, labels and titles of both axes.
  [[nodiscard]] std::string axes() const;
};

// <figure> around an <svg> that screen readers call by title and description;
// id must be unique in the page.
[[nodiscard]] std::string figure(std::string_view id,
                                 std::string_view title,
                                 std::string_view description,
                                 double width,
                                 double height,
                                 std::string_view drawing);

// A coordinate, to a tenth of a unit.
[[nodiscard]] std::string coordinate(double value);

// The mark of a series at a point: shapes differ as well as colours.
[[nodiscard]] std::string marker(std::size_t series,
                                 double x,
                                 double y,
                                 std::string_view title);

}  // namespace nibble::report
