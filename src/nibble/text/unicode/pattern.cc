#include "nibble/text/unicode/pattern.h"

namespace nibble::text {

std::vector<Range> Pattern::find_all(std::string_view text) const {
  if (const Regex* regex = std::get_if<Regex>(&what_)) {
    return regex->find_all(text);
  }
  const std::string& needle = std::get<std::string>(what_);
  std::vector<Range> matches;
  if (needle.empty()) {
    return matches;
  }
  for (std::size_t at = text.find(needle); at != std::string_view::npos;
       at = text.find(needle, at + needle.size())) {
    matches.push_back({at, at + needle.size()});
  }
  return matches;
}

std::string Pattern::replace_all(std::string_view text,
                                 std::string_view content) const {
  std::string out;
  std::size_t from = 0;
  for (const Range& match : find_all(text)) {
    out += text.substr(from, match.begin - from);
    out += content;
    from = match.end;
  }
  out += text.substr(from);
  return out;
}

}  // namespace nibble::text
