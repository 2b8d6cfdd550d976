#include "nibble/text/jinja/text_tools.h"

#include <cstddef>

#include <utf8proc.h>

#include "nibble/base/error.h"
#include "nibble/text/unicode/utf8.h"

namespace nibble::text::jinja {
namespace {

// Letters of Unicode's SpecialCasing, generously.
bool has_special_case(char32_t c) {
  return c == 0xDF || c == 0x130 || c == 0x149 || c == 0x1F0 || c == 0x390 ||
         c == 0x3A3 || c == 0x3B0 || c == 0x587 ||
         (c >= 0x1E96 && c <= 0x1E9E) || (c >= 0x1F50 && c <= 0x1FFC) ||
         (c >= 0xFB00 && c <= 0xFB17);
}

bool strips(std::string_view character, std::string_view chars) {
  if (!chars.empty()) {
    return chars.find(character) != std::string_view::npos;
  }
  std::size_t at = 0;
  return is_python_space(next_code_point(character, at));
}

std::size_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) {
    --at;
  }
  return at;
}

}  // namespace

bool is_python_space(char32_t code_point) {
  return is_whitespace(code_point) ||
         (code_point >= 0x1C && code_point <= 0x1F);
}

std::string_view strip(std::string_view text,
                       Side side,
                       std::string_view chars) {
  while (side != Side::kRight && !text.empty() &&
         strips(text.substr(0, utf8_length(text[0])), chars)) {
    text.remove_prefix(utf8_length(text[0]));
  }
  while (side != Side::kLeft && !text.empty() &&
         strips(text.substr(last_character(text)), chars)) {
    text.remove_suffix(text.size() - last_character(text));
  }
  return text;
}

std::vector<std::string> split(std::string_view text,
                               std::string_view separator,
                               long limit) {
  std::vector<std::string> parts;
  if (!separator.empty()) {
    for (std::size_t at = text.find(separator);
         at != std::string_view::npos && limit != 0;
         at = text.find(separator)) {
      parts.emplace_back(text.substr(0, at));
      text.remove_prefix(at + separator.size());
      --limit;
    }
    parts.emplace_back(text);
    return parts;
  }
  text = strip(text, Side::kLeft);
  while (!text.empty()) {
    if (limit == 0) {
      parts.emplace_back(text);  // with the white space at its end
      break;
    }
    std::size_t end = 0;
    while (end < text.size()) {
      std::size_t behind = end;
      if (is_python_space(next_code_point(text, behind))) {
        break;
      }
      end = behind;
    }
    parts.emplace_back(text.substr(0, end));
    text = strip(text.substr(end), Side::kLeft);
    --limit;
  }
  return parts;
}

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < text.size(); at += all.back().size()) {
    all.emplace_back(text.substr(at, utf8_length(text[at])));
  }
  return all;
}

std::string change_case(std::string_view text, bool upper) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    NIBBLE_CHECK(!has_special_case(c),
                 kUnsupported,
                 "{}: found U+{:04X}, expected a letter with a plain case",
                 upper ? "upper" : "lower",
                 static_cast<unsigned>(c));
    const auto point = static_cast<utf8proc_int32_t>(c);
    append_utf8(static_cast<char32_t>(upper ? utf8proc_toupper(point)
                                            : utf8proc_tolower(point)),
                out);
  }
  return out;
}

}  // namespace nibble::text::jinja
