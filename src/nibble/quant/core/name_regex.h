#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "nibble/base/error.h"

namespace nibble::quant {

// A regular expression over module names, as recipes and checkpoint
// configurations use them behind "re:". Perl syntax, compiled once; bytes, not
// characters. Matching is bounded in steps and memory, since patterns come
// from files. Immutable; may be used from several threads.
class NameRegex {
 public:
  // Throws an Error of code `blame`, with the place in the pattern, when it
  // cannot be compiled.
  explicit NameRegex(std::string_view pattern, ErrorCode blame);

  // Whether the whole name fits. An Error of the same code when the pattern
  // needs too many steps.
  [[nodiscard]] bool fits_whole(std::string_view name) const;
  // Whether a prefix of the name fits, as Python's re.match does.
  [[nodiscard]] bool fits_start(std::string_view name) const;

 private:
  [[nodiscard]] bool run(std::string_view name, bool whole) const;

  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
  std::string pattern_;
  ErrorCode blame_;
};

}  // namespace nibble::quant
