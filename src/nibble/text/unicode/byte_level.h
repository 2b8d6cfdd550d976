#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nibble::text {

// The alphabet of byte-level BPE: each byte is written as one printable
// character. 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF keep their code point, the
// other 68 bytes become U+0100, U+0101, ... in increasing order; so a space
// (0x20) is U+0120 and a line feed (0x0A) U+010A. Source: GPT-2's vocabulary.

// Appends the characters that stand for bytes.
void append_byte_level(std::string_view bytes, std::string& out);

// The bytes that the characters of token stand for, or nothing when a
// character is outside the alphabet. token must be valid UTF-8.
[[nodiscard]] std::optional<std::string> from_byte_level(
    std::string_view token);

}  // namespace nibble::text
