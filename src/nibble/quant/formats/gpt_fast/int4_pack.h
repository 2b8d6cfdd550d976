#pragma once

#include <cstdint>

// Orders of 4-bit codes in gpt-fast's files. The tile-packed layout of
// PyTorch's CUDA int4 operators, as gpt-fast's files hold it: int32 words [out
// / 8][in / (16 T)][32][T / 2], T = inner_k_tiles 2, 4 or 8. Word (a, b, lane,
// j) holds eight 4-bit codes of output 8 a + lane / 4; nibble p (bits 4p to 4p
// + 3) is input
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

// Orders of the codes of a linear.
enum class Order {
  kTiles,
  // (out, in / 2) bytes, the even input in the high nibble.
  kBytes,
  // As PyTorch's CPU operators pack: blocks of 64 outputs (AVX-512) or 32,
  // inside input-major, half a block of bytes an input. A whole block pairs
  // output c (low nibble) with c + size / 2, a cut one 2c with 2c + 1.
  kCpu64,
  kCpu32,
};

// A matrix of codes as a file holds it.
struct CodeLayout {
  Order order = Order::kTiles;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // with padding
  std::int64_t tiles = 8;    // inner_k_tiles
};

struct CodePlace {
  std::int64_t byte = 0;
  int shift = 0;  // 0 or 4
};

[[nodiscard]] constexpr CodePlace code_place(const CodeLayout& layout,
                                             std::int64_t row,
                                             std::int64_t column) {
  const std::int64_t half = layout.columns / 2;
  if (layout.order == Order::kTiles) {
    const NibblePlace place =
        nibble_place(row, column, layout.columns, layout.tiles);
    return {place.word * 4 + place.shift / 8, place.shift % 8};
  }
  if (layout.order == Order::kBytes) {
    return {row * half + column / 2, column % 2 == 0 ? 4 : 0};
  }
  const std::int64_t size = layout.order == Order::kCpu64 ? 64 : 32;
  const std::int64_t first = row / size * size;
  const std::int64_t in_block = row - first;
  const std::int64_t height =
      layout.rows - first < size ? layout.rows - first : size;
  const bool whole = height == size;
  const bool high = whole ? in_block >= size / 2 : in_block % 2 == 1;
  const std::int64_t at = whole ? in_block % (size / 2) : in_block / 2;
  return {first * half + column * height / 2 + at, high ? 4 : 0};
}

}  // namespace nibble::quant::gpt_fast
