#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "nibble/base/cpu.h"

namespace nibble::quant::compressed_tensors {

// How integer codes of 4 and 8 bits lie in 32-bit words (little-endian).
// A code q is stored as u = q + 2^(bits-1), lowest bits first:
//
//   bit  31 28 27 24 23 20 19 16 15 12 11  8 7   4 3   0
//        [u7 ] [u6 ] [u5 ] [u4 ] [u3 ] [u2 ] [u1 ] [u0 ]   4 bits
//        [  u3     ] [  u2     ] [  u1     ] [  u0     ]   8 bits
//
// Worked: q = 2 -8 5 0 -1 4 -8 7 -> u = A 0 D 8 7 C 0 F -> word 0xF0C78D0A
// -> bytes 0A 8D C7 F0. So a row of weights is a string of bytes with the even
// column in the low half; see docs/formats/compressed-tensors.md.

// 32-bit words that hold `count` codes, the last one filled with u = 0.
[[nodiscard]] std::int64_t words_for(std::int64_t count, int bits);

// Codes of one row into words_for(codes.size(), bits) * 4 bytes; or of several
// that fill their words. Every isa that this processor has gives the same.
void pack_row(std::span<const std::int8_t> codes,
              int bits,
              std::span<std::byte> words,
              Isa isa = best_isa());

// The reverse; what stands behind the last code is not looked at.
void unpack_row(std::span<const std::byte> words,
                int bits,
                std::span<std::int8_t> codes);

// Zero points (rows, groups) are packed down the rows: word (r, g) holds rows
// r * 32/bits ... of group g. `words` has words_for(rows, bits) * groups words.
void pack_columns(std::span<const std::int8_t> zeros,
                  std::int64_t groups,
                  int bits,
                  std::span<std::byte> words);
void unpack_columns(std::span<const std::byte> words,
                    std::int64_t groups,
                    int bits,
                    std::span<std::int8_t> zeros);

}  // namespace nibble::quant::compressed_tensors
