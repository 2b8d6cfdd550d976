#include "nibble/text/unicode/byte_level.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "nibble/text/unicode/utf8.h"

namespace nibble::text {
namespace {

constexpr char32_t kFirstShifted = 0x100;
constexpr std::size_t kShiftedBytes = 68;

constexpr bool keeps_code_point(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         byte >= 0xAE;
}

struct Alphabet {
  // UTF-8 of each byte's character: one or two bytes.
  std::array<std::array<char, 2>, 256> text{};
  std::array<std::uint8_t, 256> length{};
  // The byte of each code point; -1 = not in the alphabet.
  std::array<std::int16_t, kFirstShifted + kShiftedBytes> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  char32_t shifted = kFirstShifted;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t c = keeps_code_point(byte) ? byte : shifted++;
    alphabet.byte[c] = static_cast<std::int16_t>(byte);
    if (c < 0x80) {
      alphabet.text[byte] = {static_cast<char>(c), 0};
      alphabet.length[byte] = 1;
    } else {
      alphabet.text[byte] = {static_cast<char>(0xC0 | c >> 6),
                             static_cast<char>(0x80 | (c & 0x3F))};
      alphabet.length[byte] = 2;
    }
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

void append_byte_level(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out.append(kAlphabet.text[byte].data(), kAlphabet.length[byte]);
  }
}

std::optional<std::string> from_byte_level(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t at = 0; at < token.size();) {
    const char32_t c = next_code_point(token, at);
    if (c >= kAlphabet.byte.size() || kAlphabet.byte[c] < 0) {
      return std::nullopt;
    }
    bytes += static_cast<char>(kAlphabet.byte[c]);
  }
  return bytes;
}

}  // namespace nibble::text
