#include "nibble/quant/core/shape_checks.h"

#include <algorithm>
#include <string>

#include "nibble/base/error.h"

namespace nibble::quant {
namespace {

// What to use for a weight that spec.group does not divide.
std::string group_hint(std::int64_t columns, std::int64_t group) {
  for (const std::int64_t candidate : {256, 128, 64, 32}) {
    if (candidate < group && columns % candidate == 0) {
      return fmt::format("use group {}", candidate);
    }
  }
  return "use group \"channel\", or \"keep\" for this layer";
}

}  // namespace

void check_grain(const NumberSpec& spec,
                 std::initializer_list<Grain> allowed,
                 std::string_view words) {
  NIBBLE_CHECK(std::ranges::count(allowed, spec.grain) != 0,
               kUnsupported,
               "scheme {}: found scales per {}, expected {}",
               spec.scheme,
               grain_name(spec.grain),
               words);
}

void check_scale_dtype(const NumberSpec& spec) {
  NIBBLE_CHECK(is_weight_dtype(spec.scale_dtype),
               kUnsupported,
               "scheme {}: found scales of {}, expected F32, F16 or BF16",
               spec.scheme,
               dtype_name(spec.scale_dtype));
}

void check_divides(const NumberSpec& spec,
                   std::int64_t rows,
                   std::int64_t columns) {
  NIBBLE_CHECK(rows > 0 && columns > 0,
               kUnsupported,
               "scheme {}: found a weight of {} x {}, expected at least one "
               "element",
               spec.scheme,
               rows,
               columns);
  if (spec.grain == Grain::kGroup) {
    NIBBLE_CHECK(spec.group > 0,
                 kUnsupported,
                 "scheme {}: found group {}, expected a positive number",
                 spec.scheme,
                 spec.group);
    if (columns % spec.group != 0) {
      fail_with_hint(ErrorCode::kUnsupported,
                     group_hint(columns, spec.group),
                     "scheme {}: found {} columns, expected a multiple of "
                     "group {}",
                     spec.scheme,
                     columns,
                     spec.group);
    }
  }
  if (spec.grain == Grain::kBlock) {
    NIBBLE_CHECK(
        spec.block_rows > 0 && spec.block_columns > 0,
        kUnsupported,
        "scheme {}: found blocks of {} x {}, expected positive numbers",
        spec.scheme,
        spec.block_rows,
        spec.block_columns);
    if (columns % spec.block_columns != 0) {
      fail_with_hint(ErrorCode::kUnsupported,
                     "use group \"channel\"",
                     "scheme {}: found {} columns, expected a multiple of the "
                     "block's {} columns",
                     spec.scheme,
                     columns,
                     spec.block_columns);
    }
  }
}

}  // namespace nibble::quant
