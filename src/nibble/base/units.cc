#include "nibble/base/units.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>
#include <vector>

#include "nibble/base/error.h"

namespace nibble {
namespace {

// Factor of a unit in lower case without its final b: "", "k", "ki", "m" ...
double unit_factor(std::string_view unit) {
  constexpr std::string_view kPrefixes = "kmgt";
  if (unit.empty()) {
    return 1;
  }
  const std::size_t power = kPrefixes.find(unit[0]);
  if (power == std::string_view::npos || unit.size() > 2 ||
      (unit.size() == 2 && unit[1] != 'i')) {
    return 0;
  }
  return std::pow(unit.size() == 2 ? 1024.0 : 1000.0, power + 1);
}

}  // namespace

std::uint64_t parse_size(std::string_view text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit;
  for (const char* p = end; p != text.data() + text.size(); ++p) {
    if (*p != ' ') {
      unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*p)));
    }
  }
  if (!unit.empty() && unit.back() == 'b') {
    unit.pop_back();
  }
  const double bytes = value * unit_factor(unit);
  NIBBLE_CHECK(error == std::errc() && bytes >= 1 && bytes < 0x1p62,
               kInvalidArgument,
               "size: found '{}', expected a number and a unit such as 512MiB "
               "or 4GB",
               printable(text));
  return static_cast<std::uint64_t>(bytes);
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds < 9.95) {
    return fmt::format("{:.1f} s", seconds);
  }
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) {
    return fmt::format("{} s", whole);
  }
  if (whole < 3600) {
    return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  }
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace nibble
