#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace nibble::text {

// A part of a text: bytes [begin, end).
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  friend bool operator==(const Range&, const Range&) = default;
};

// A Unicode regular expression from a tokenizer file, as Oniguruma (which
// those files are written for) would run it. Immutable; may be used from
// several threads.
class Regex {
 public:
  // kUnsupported, with the pattern and the place in it, when it cannot be
  // compiled or means something else here than there.
  explicit Regex(std::string_view pattern);

  // All matches, leftmost first, without overlap; empty matches included.
  // text must be valid UTF-8. kUnsupported when the pattern needs more than
  // the allowed steps or memory on this text.
  [[nodiscard]] std::vector<Range> find_all(std::string_view text) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace nibble::text
