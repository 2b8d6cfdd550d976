#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nibble::text::jinja {

// Python's string operations on UTF-8.

// str.isspace of one character: Unicode white space and U+001C to U+001F.
[[nodiscard]] bool is_python_space(char32_t code_point);

// str.strip() and its halves; chars empty: white space, else any of chars.
enum class Side { kBoth, kLeft, kRight };
[[nodiscard]] std::string_view strip(std::string_view text,
                                     Side side,
                                     std::string_view chars = {});

// str.split(); separator empty: at white space, without empty parts.
// limit < 0: as often as possible.
[[nodiscard]] std::vector<std::string> split(std::string_view text,
                                             std::string_view separator,
                                             long limit);

// The characters, each as UTF-8.
[[nodiscard]] std::vector<std::string> characters(std::string_view text);

// str.upper() or str.lower(). kUnsupported for the few letters whose case
// changes their number of characters or depends on their neighbours.
[[nodiscard]] std::string change_case(std::string_view text, bool upper);

}  // namespace nibble::text::jinja
