#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nibble::text {

// Bytes of U+FFFD, which stands for what is not UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// What the first character of a byte string is.
struct Utf8Scan {
  enum class Kind { kComplete, kTruncated, kInvalid };

  Kind kind;
  // Bytes of the character; of the part that could still become one
  // (kTruncated); or of the maximal part that U+FFFD replaces (kInvalid).
  std::size_t length;
};

// Looks at the first character of bytes, which must not be empty. Surrogates,
// overlong forms and code points above U+10FFFF are invalid (Unicode 15,
// table 3-7).
[[nodiscard]] Utf8Scan scan_utf8(std::string_view bytes);

[[nodiscard]] bool is_valid_utf8(std::string_view bytes);

// bytes with each maximal invalid part replaced by U+FFFD.
[[nodiscard]] std::string to_valid_utf8(std::string_view bytes);

// The code point at text[at]; moves at behind it. text must be valid UTF-8
// and at the start of a character in it.
[[nodiscard]] char32_t next_code_point(std::string_view text, std::size_t& at);

// Bytes of the character whose first byte is lead, in valid UTF-8.
[[nodiscard]] constexpr std::size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

void append_utf8(char32_t code_point, std::string& out);

// Unicode classes of one code point.
[[nodiscard]] bool is_whitespace(char32_t code_point);  // White_Space
[[nodiscard]] bool is_numeric(char32_t code_point);     // Nd, Nl, No
// Letters, marks, decimal digits, connectors: what \w means.
[[nodiscard]] bool is_word(char32_t code_point);

// Turns bytes that arrive in portions into valid UTF-8: a character is handed
// on once it is complete, each invalid part as U+FFFD. The concatenation of
// all output equals to_valid_utf8 of the concatenated input.
class Utf8Assembler {
 public:
  void push(std::string_view bytes, std::string& out);
  // The bytes still held will not be completed.
  void finish(std::string& out);

 private:
  std::string held_;  // at most 3 bytes between calls
};

}  // namespace nibble::text
