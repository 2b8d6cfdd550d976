#pragma once

#include <cstddef>
#include <cstdint>

#include "nibble/quant/schemes/common/kernel_types.h"

// What crosses into the files compiled for one instruction set: plain data
// and plain functions.
//
// All kernels compute with 16-bit integers. A weight is its code, an
// activation is a 16-bit code with a float32 scale for each block of columns;
// the products of a block (at most 128 columns) are summed exactly in 32 bits,
//   128 columns * 32767 * 255 < 2^31,
// then multiplied by the two scales and added up in float32. Where activations
// are int8 codes, a set of instructions may have kernels with products of 8
// bits. The integer sums are the same on every instruction set.
namespace nibble::quant {

// Codes of 16 rows stand side by side in a dword a row, so that no kernel ever
// adds across a vector. A 64-byte run holds, for each of the 16 rows,
//   4 bits: 8 columns; bits 4j..4j+3 of the low half hold column 2j, of the
//           high half column 2j + 1, plus 8 (0..15)
//             row r: | 7 | 5 | 3 | 1 | 6 | 4 | 2 | 0 |   high nibble first
//   8 bits: 4 columns, two's complement
//             row r: | 3 | 1 | 2 | 0 |                   high byte first
// so a shift and a mask (4 bits) or two shifts (8 bits) leave the pairs of
// columns (2j, 2j + 1) as 16-bit halves. Runs follow each other along the
// columns, then come the next 16 rows.
struct IntegerWeights {
  const std::uint8_t* codes;
  const void* scales;        // (tiles, scales a row, 16) of scale_kind
  const std::int8_t* zeros;  // as scales, in the codes' own offset; or null
  ScaleKind scale_kind;
  int bits;                 // 4 or 8
  std::int64_t columns;     // a multiple of 8
  std::int64_t tile_bytes;  // bytes of 16 rows of codes
  std::int64_t block;       // columns of a block; the last may have fewer
  std::int64_t blocks;
  std::int64_t blocks_per_scale;
  std::int64_t scales_per_row;
};

// A few tokens, interleaved.
struct IntegerInputs {
  // 16 bits: pairs of columns (columns / 2, tokens), column 2j in the low half.
  // 8 bits: quads (columns / 4, tokens) in the order in which a run's bytes
  // come out, low byte first: for 4-bit weights columns 0 4 1 5 and 2 6 3 7 of
  // 8, for 8-bit weights 0 2 1 3 and 4 6 5 7.
  const std::int32_t* words;
  const float* scales;       // (tokens, blocks)
  const std::int32_t* sums;  // (tokens, blocks): sums of the codes
  int tokens;
};

// Blocks [first, first + count) of a weight.
struct BlockRange {
  std::int64_t first;
  std::int64_t count;
};

struct IntegerKernels {
  // Tokens of one IntegerInputs that few and panel take.
  int few_tokens;
  int panel_tokens;
  int input_bits;  // of the words: 16, or 8 for int8 codes only
  // out (tokens, 16) = the rows of one tile.
  void (*few)(const IntegerWeights& weights,
              std::int64_t tile,
              const IntegerInputs& inputs,
              float* out);
  // panel = codes of some blocks, input_bits each, as panel() of the same
  // kernels reads them.
  void (*unpack)(const IntegerWeights& weights,
                 std::int64_t tile,
                 BlockRange range,
                 void* panel);
  // out (tokens, 16 * tiles) += what the blocks of `tiles` panels (1 or 2)
  // contribute; panels lie panel_bytes apart.
  void (*panel)(const IntegerWeights& weights,
                std::int64_t tile,
                int tiles,
                BlockRange range,
                const void* panel,
                std::int64_t panel_bytes,
                const IntegerInputs& inputs,
                float* out);
};

extern const IntegerKernels kIntegerPortable;
#if defined(__x86_64__)
extern const IntegerKernels kIntegerAvx2;
extern const IntegerKernels kIntegerAvx512;
extern const IntegerKernels kIntegerAvx512Int8;
#endif

}  // namespace nibble::quant
