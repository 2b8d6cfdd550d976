#include "nibble/quant/core/scheme.h"

#include <algorithm>

namespace nibble::quant {

bool Scheme::handles(const NumberSpec& spec) const {
  return std::ranges::count(recipe_names(), spec.scheme) != 0;
}

}  // namespace nibble::quant
