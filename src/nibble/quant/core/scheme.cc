#include "nibble/quant/core/scheme.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "nibble/base/error.h"

namespace nibble::quant {

bool Scheme::handles(const NumberSpec& spec) const {
  return std::ranges::count(recipe_names(), spec.scheme) != 0;
}

NumberSpec Scheme::spec_named(std::string_view name) const {
  NumberSpec spec;
  spec.scheme = std::string(name);
  const std::size_t digits = name.find_first_of("0123456789");
  NIBBLE_CHECK(digits != std::string_view::npos,
               kInternal,
               "scheme {}: found no number of bits in the name",
               name);
  std::from_chars(name.data() + digits, name.data() + name.size(), spec.bits);
  spec.floating = name.substr(0, digits) != "int";
  if (spec.bits < 8) {
    spec.grain = Grain::kGroup;
    spec.group = 128;
  }
  return spec;
}

}  // namespace nibble::quant
