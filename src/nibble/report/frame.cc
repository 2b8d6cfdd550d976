#include "nibble/report/frame.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "nibble/report/html.h"
#include "nibble/report/style.h"

namespace nibble::report {
namespace {

double share_of(const Axis& axis, double value) {
  if (axis.logarithmic) {
    return std::log(value / axis.low) / std::log(axis.high / axis.low);
  }
  return (value - axis.low) / (axis.high - axis.low);
}

// Short also for values far from one: "0.05", "6.85e-4".
std::string tick_label(double value) {
  if (value == 0 || (std::abs(value) >= 1e-3 && std::abs(value) < 1e6)) {
    return fmt::format("{:.6g}", value);
  }
  const double power = std::floor(std::log10(std::abs(value)) + 1e-9);
  return fmt::format("{:.4g}e{:.0f}", value / std::pow(10, power), power);
}

// 1, 2 or 5 times a power of ten, at least `step`.
double round_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step * (1 - 1e-9)) {
      return factor * power;
    }
  }
  return 10 * power;
}

std::vector<Tick> linear_ticks(const Axis& axis, int wanted) {
  double step = round_step((axis.high - axis.low) / wanted);
  if (axis.whole) {
    step = std::max(step, 1.0);
  }
  std::vector<Tick> ticks;
  const double first = std::ceil(axis.low / step - 1e-9);
  for (double i = first; i * step <= axis.high * (1 + 1e-9); i += 1) {
    const double value = i * step + 0.0;  // no -0
    ticks.push_back({value, tick_label(value)});
  }
  return ticks;
}

// Powers of ten; between them 2 and 5 where there are few.
std::vector<Tick> log_ticks(const Axis& axis, int wanted) {
  const double decades = std::log10(axis.high / axis.low);
  const int skip = std::max(1, static_cast<int>(std::ceil(decades / wanted)));
  std::vector<Tick> ticks;
  const int first = static_cast<int>(std::floor(std::log10(axis.low)));
  const int last = static_cast<int>(std::ceil(std::log10(axis.high)));
  for (int power = first; power <= last; ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10, power);
      const bool shown =
          factor == 1 ? (power - first) % skip == 0 : decades < 2.5;
      if (shown && value >= axis.low * (1 - 1e-9) &&
          value <= axis.high * (1 + 1e-9)) {
        ticks.push_back({value, tick_label(value)});
      }
    }
  }
  return ticks;
}

}  // namespace

std::vector<Tick> ticks_of(const Axis& axis, int wanted) {
  // Within less than a decade powers of ten are too few.
  if (axis.logarithmic && axis.high / axis.low > 8) {
    return log_ticks(axis, wanted);
  }
  return linear_ticks(axis, wanted);
}

Axis axis_around(std::string label,
                 const std::vector<double>& values,
                 bool logarithmic) {
  Axis axis{std::move(label), 0, 1, logarithmic};
  if (values.empty()) {
    axis.low = logarithmic ? 0.1 : 0;
    return axis;
  }
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  axis.low = *low;
  axis.high = *high;
  if (logarithmic) {
    const double ratio = *high / *low;
    const double room = ratio > 1 ? std::pow(ratio, 0.08) : 1.15;
    axis.low /= room;
    axis.high *= room;
  } else {
    double room = 0.06 * (*high - *low);
    room = room > 0 ? room : std::max(0.05 * std::abs(*high), 0.5);
    axis.low -= room;
    axis.high += room;
  }
  return axis;
}

double Frame::at_x(double value) const {
  return left + share_of(x, value) * (width - left - right);
}

double Frame::at_y(double value) const {
  return height - bottom - share_of(y, value) * (height - top - bottom);
}

std::string coordinate(double value) {
  return fmt::format("{:.1f}", value);
}

std::string Frame::axes() const {
  std::string drawing;
  const std::string x_end = coordinate(width - right);
  for (const Tick& tick : ticks_of(y, 6)) {
    const std::string at = coordinate(at_y(tick.value));
    drawing += shape("line",
                     {{"class", "grid"},
                      {"x1", coordinate(left)},
                      {"x2", x_end},
                      {"y1", at},
                      {"y2", at}});
    drawing += text_element("text",
                            {{"class", "soft"},
                             {"x", coordinate(left - 8)},
                             {"y", coordinate(at_y(tick.value) + 4)},
                             {"text-anchor", "end"}},
                            tick.label);
  }
  for (const Tick& tick : ticks_of(x, 8)) {
    drawing += text_element("text",
                            {{"class", "soft"},
                             {"x", coordinate(at_x(tick.value))},
                             {"y", coordinate(height - bottom + 18)},
                             {"text-anchor", "middle"}},
                            tick.label);
  }
  drawing += shape("line",
                   {{"class", "axis"},
                    {"x1", coordinate(left)},
                    {"x2", x_end},
                    {"y1", coordinate(height - bottom)},
                    {"y2", coordinate(height - bottom)}});
  drawing += text_element("text",
                          {{"x", coordinate((left + width - right) / 2)},
                           {"y", coordinate(height - 8)},
                           {"text-anchor", "middle"}},
                          x.label);
  const std::string middle = coordinate((top + height - bottom) / 2);
  drawing += text_element("text",
                          {{"x", "14"},
                           {"y", middle},
                           {"text-anchor", "middle"},
                           {"transform", "rotate(-90 14 " + middle + ")"}},
                          y.label);
  return drawing;
}

std::string figure(std::string_view id,
                   std::string_view title,
                   std::string_view description,
                   double width,
                   double height,
                   std::string_view drawing) {
  const std::string name(id);
  const std::string svg =
      element("svg",
              {{"viewBox", fmt::format("0 0 {:.0f} {:.0f}", width, height)},
               {"role", "img"},
               {"aria-labelledby", name + "-title " + name + "-desc"}},
              text_element("title", {{"id", name + "-title"}}, title) +
                  text_element("desc", {{"id", name + "-desc"}}, description) +
                  std::string(drawing));
  return element("figure",
                 {},
                 element("div", {{"class", "wide"}, {"tabindex", "0"}}, svg)) +
         "\n";
}

std::string marker(std::size_t series,
                   double x,
                   double y,
                   std::string_view title) {
  const std::string color =
      fmt::format("s{}", series % static_cast<std::size_t>(kSeriesColors));
  std::string path;
  switch (series % 4) {
    case 0:
      path = fmt::format(
          "M{:.1f} {:.1f}m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", x, y);
      break;
    case 1:
      path = fmt::format("M{:.1f} {:.1f}h7v7h-7z", x - 3.5, y - 3.5);
      break;
    case 2:
      path = fmt::format("M{:.1f} {:.1f}l4.6 8h-9.2z", x, y - 5);
      break;
    default:
      path =
          fmt::format("M{:.1f} {:.1f}l4.6 4.6l-4.6 4.6l-4.6 -4.6z", x, y - 4.6);
  }
  return element("path",
                 {{"class", color}, {"d", path}},
                 text_element("title", {}, title));
}

}  // namespace nibble::report
