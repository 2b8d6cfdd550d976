#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "nibble/text/unicode/regex.h"

namespace nibble::text {

// What a tokenizer file calls a pattern: {"String": s}, found literally, or
// {"Regex": s}. Immutable.
class Pattern {
 public:
  static Pattern literal(std::string text) { return Pattern(std::move(text)); }

  static Pattern regex(std::string_view text) { return Pattern(Regex(text)); }

  // All matches in valid UTF-8, in order, without overlap. An empty literal
  // is found nowhere.
  [[nodiscard]] std::vector<Range> find_all(std::string_view text) const;

  // text with every match replaced by content (taken literally).
  [[nodiscard]] std::string replace_all(std::string_view text,
                                        std::string_view content) const;

 private:
  explicit Pattern(std::variant<std::string, Regex> what)
      : what_(std::move(what)) {}

  std::variant<std::string, Regex> what_;
};

}  // namespace nibble::text
