#pragma once

#include <string>
#include <variant>
#include <vector>

#include "nibble/text/unicode/pattern.h"

namespace nibble::text {

// Rewrites text before it is cut: the "normalizer" of tokenizer.json as a list
// of steps (nested sequences flattened; none = text unchanged). Immutable.
class Normalizer {
 public:
  // Canonical composition (Unicode Standard Annex 15).
  struct Nfc {};

  // Puts text in front of anything that is not empty.
  struct Prepend {
    std::string text;
  };

  struct Replace {
    Pattern pattern;
    std::string content;
  };

  using Step = std::variant<Nfc, Prepend, Replace>;

  Normalizer() = default;

  explicit Normalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  // text must be valid UTF-8; so is the result.
  [[nodiscard]] std::string apply(std::string text) const;

  [[nodiscard]] bool empty() const { return steps_.empty(); }

 private:
  std::vector<Step> steps_;
};

}  // namespace nibble::text
