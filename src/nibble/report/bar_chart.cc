#include <algorithm>

#include "nibble/report/html.h"
#include "nibble/report/plots.h"

namespace nibble::report {

std::string bar_chart(std::string_view id,
                      std::string_view title,
                      std::string_view description,
                      const std::vector<Bar>& bars) {
  constexpr double kWidth = 640;
  constexpr double kLabels = 110;
  constexpr double kTexts = 170;
  constexpr double kLine = 30;
  double most = 0;
  for (const Bar& bar : bars) {
    most = std::max({most, bar.value, bar.reference});
  }
  most = most > 0 ? most : 1;
  const double scale = (kWidth - kLabels - kTexts) / most;
  std::string drawing;
  double y = 4;
  for (const Bar& bar : bars) {
    const auto rectangle = [&](const char* look, double value, double height) {
      return shape("rect",
                   {{"class", look},
                    {"x", coordinate(kLabels)},
                    {"y", coordinate(y + (22 - height) / 2)},
                    {"rx", "2"},
                    // Not so thin that it vanishes.
                    {"width", coordinate(std::max(value * scale, 1.0))},
                    {"height", coordinate(height)}});
    };
    if (bar.reference > 0) {
      drawing += rectangle("ghost", bar.reference, 22);
    }
    drawing += rectangle("bar", bar.value, 12);
    drawing += text_element("text",
                            {{"x", coordinate(kLabels - 8)},
                             {"y", coordinate(y + 15)},
                             {"text-anchor", "end"}},
                            bar.label);
    const double longest = std::max(bar.value, bar.reference) * scale;
    drawing += text_element("text",
                            {{"class", "soft"},
                             {"x", coordinate(kLabels + longest + 8)},
                             {"y", coordinate(y + 15)}},
                            bar.text);
    y += kLine;
  }
  return figure(id, title, description, kWidth, y + 4, drawing);
}

}  // namespace nibble::report
