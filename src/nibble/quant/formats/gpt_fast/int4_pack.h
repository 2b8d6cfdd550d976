#pragma once

#include <cstdint>

// The tile-packed layout of PyTorch's CUDA int4 operators, as gpt-fast's files
// hold it: int32 words [out / 8][in / (16 T)][32][T / 2], T = inner_k_tiles 2,
// 4 or 8. Word (a, b, lane, j) holds eight 4-bit codes of output
// 8 a + lane / 4; nibble p (bits 4p to 4p + 3) is input
//   16 T b + 32 j + 2 (lane mod 4) + 8 (p mod 4) + p / 4.
// Example, T = 2, codes (3 n + k) mod 16: the first word, of output 0, holds
// inputs 0 8 16 24 1 9 17 25 from the low nibble up: 0x91918080.
namespace nibble::quant::gpt_fast {

// Where the code of (output, input) lies.
struct NibblePlace {
  std::int64_t word = 0;
  int shift = 0;  // bits
};

[[nodiscard]] constexpr NibblePlace nibble_place(std::int64_t out,
                                                 std::int64_t in,
                                                 std::int64_t inputs,
                                                 std::int64_t tiles) {
  const std::int64_t blocks = inputs / (16 * tiles);
  const std::int64_t block = in / (16 * tiles);
  const std::int64_t j = in % (16 * tiles) / 32;
  const std::int64_t r = in % 32;
  const std::int64_t lane = 4 * (out % 8) + r % 8 / 2;
  const std::int64_t nibble = r / 8 + 4 * (r % 2);
  return {((out / 8 * blocks + block) * 32 + lane) * (tiles / 2) + j,
          static_cast<int>(4 * nibble)};
}

}  // namespace nibble::quant::gpt_fast
