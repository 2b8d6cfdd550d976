#pragma once

#include <cstdint>

namespace nibble::quant::meta {

// Two codes a byte, two's complement: bits 0-3 hold the code of the even input,
// bits 4-7 that of the odd one. Byte 0xD8: -8 (0x8), then -3 (0xD).

[[nodiscard]] constexpr std::uint8_t low_code(std::uint8_t byte) {
  return static_cast<std::uint8_t>(static_cast<std::int8_t>(byte << 4) >> 4);
}

[[nodiscard]] constexpr std::uint8_t high_code(std::uint8_t byte) {
  return static_cast<std::uint8_t>(static_cast<std::int8_t>(byte) >> 4);
}

[[nodiscard]] constexpr std::uint8_t pack_codes(std::int8_t even,
                                                std::int8_t odd) {
  return static_cast<std::uint8_t>((even & 0x0F) | (odd << 4));
}

}  // namespace nibble::quant::meta
