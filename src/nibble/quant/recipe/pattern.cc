#include "nibble/quant/recipe/pattern.h"

#include "nibble/quant/recipe/recipe.h"

namespace nibble::quant {
namespace {

// Linear in practice: on a mismatch only the last * gives up one character
// more, since an earlier one could not do better.
bool glob_fits(std::string_view glob, std::string_view name) {
  std::size_t g = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_name = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_name = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g;
      ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++star_name;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', g) == std::string_view::npos;
}

}  // namespace

Pattern::Pattern(std::string_view text) : text_(text) {
  NIBBLE_CHECK(!text.empty(), kBadRecipe, "found an empty pattern");
  if (text.starts_with("re:")) {
    regex_.emplace(text.substr(3), ErrorCode::kBadRecipe);
  }
}

bool Pattern::fits(std::string_view module) const {
  return regex_ ? regex_->fits_whole(module) : glob_fits(text_, module);
}

bool Pattern::is_exact() const {
  return !regex_ && text_.find_first_of("*?") == std::string::npos;
}

bool pattern_fits(std::string_view pattern, std::string_view module) {
  return Pattern(pattern).fits(module);
}

}  // namespace nibble::quant
