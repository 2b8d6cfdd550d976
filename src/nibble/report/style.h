#pragma once

#include <string_view>

namespace nibble::report {

// Colours of the plots are classes s0 to s7, so that the page alone decides
// how they look in light and dark.
inline constexpr int kSeriesColors = 8;

// The style sheet of every page.
extern const std::string_view kStyle;

}  // namespace nibble::report
