#pragma once

#include <string>
#include <variant>
#include <vector>

#include "nibble/text/unicode/pattern.h"

namespace nibble::text {

// A text and the pieces it is cut into, in order; bytes outside all pieces
// were removed. Pieces are not empty.
struct Pieces {
  std::string text;
  std::vector<Range> ranges;
};

// Cuts text into the pieces that are encoded one by one: the "pre_tokenizer"
// of tokenizer.json as a list of steps (nested sequences flattened; none = one
// piece). Immutable.
class PreTokenizer {
 public:
  enum class Behavior {
    kRemoved,             // matches disappear
    kIsolated,            // each match is a piece
    kMergedWithPrevious,  // a match ends the piece before it
    kMergedWithNext,      // a match starts the piece behind it
    kContiguous,          // adjacent matches form one piece
  };

  struct Split {
    Pattern pattern;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;  // what lies between the matches counts as match
  };

  struct Digits {
    bool individual = false;
  };

  // Cuts by GPT-2's pattern (use_regex) and writes bytes in the alphabet of
  // byte_level.h.
  struct ByteLevel {
    bool add_prefix_space = true;
    bool use_regex = true;
  };

  // Spaces become the replacement character, and (split) start pieces.
  struct Metaspace {
    enum class Prepend { kAlways, kFirst, kNever };

    std::string replacement;
    Prepend prepend = Prepend::kAlways;
    bool split = true;
  };

  using Step = std::variant<Split, Digits, ByteLevel, Metaspace>;

  PreTokenizer() = default;

  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  // text must be valid UTF-8. starts_input: text is the beginning of what the
  // user gave (Metaspace "first").
  [[nodiscard]] Pieces apply(std::string text, bool starts_input) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace nibble::text
