#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "nibble/quant/core/name_regex.h"

namespace nibble::quant {

// A pattern of a rule, compiled once: an exact name, a glob with * and ? over
// the whole name, or "re:" and a regular expression that must fit the whole
// name. kBadRecipe for a malformed one.
class Pattern {
 public:
  explicit Pattern(std::string_view text);

  [[nodiscard]] bool fits(std::string_view module) const;

  [[nodiscard]] const std::string& text() const { return text_; }

  // Whether it is a plain name, without wildcards.
  [[nodiscard]] bool is_exact() const;

 private:
  std::string text_;
  std::optional<NameRegex> regex_;
};

}  // namespace nibble::quant
