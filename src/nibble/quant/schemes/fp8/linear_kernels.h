#pragma once

#include <cstddef>
#include <cstdint>

#include "nibble/quant/schemes/common/kernel_types.h"

// What crosses into the files compiled for one instruction set: plain data
// and plain functions.
//
// All kernels multiply in float32. An E4M3 code becomes a half with the same
// sign, exponent bits and mantissa bits, from which the processor converts to
// float32 (subnormals too) without a table:
//   code  S EEEE MMM            value (E > 0) = 1.MMM * 2^(E - 7)
//   half  S 0EEEE MMM0000000    value         = 1.MMM * 2^(E - 15)
// so the half is the code's value / 256. Kernels put the 256 into the scale.
namespace nibble::quant {

// Codes of 16 rows stand side by side: (tiles, columns, 16) bytes.
struct Fp8Weights {
  const std::uint8_t* codes;
  const void* scales;  // (tiles, blocks, 16) of scale_kind
  ScaleKind scale_kind;
  std::int64_t columns;
  std::int64_t block;  // columns that share a scale; the last may have fewer
  std::int64_t blocks;
};

// A few tokens, interleaved.
struct Fp8Inputs {
  const float* values;  // (columns, tokens)
  int tokens;
};

// Columns [first, first + count) of a weight.
struct ColumnRange {
  std::int64_t first;
  std::int64_t count;
};

struct Fp8Kernels {
  // Tokens of one Fp8Inputs that few and panel take.
  int few_tokens;
  int panel_tokens;
  // out (tokens, 16) = the rows of one tile.
  void (*few)(const Fp8Weights& weights,
              std::int64_t tile,
              const Fp8Inputs& inputs,
              float* out);
  // panel (columns, 16) = the decoded weights of some columns.
  void (*unpack)(const Fp8Weights& weights,
                 std::int64_t tile,
                 ColumnRange range,
                 float* panel);
  // out (tokens, 16 * tiles) += panels * inputs; panels (1 or 2) lie
  // panel_stride elements apart.
  void (*panel)(int tiles,
                ColumnRange range,
                const float* panel,
                std::int64_t panel_stride,
                const Fp8Inputs& inputs,
                float* out);
};

extern const Fp8Kernels kFp8Portable;
#if defined(__x86_64__)
extern const Fp8Kernels kFp8Avx2;
extern const Fp8Kernels kFp8Avx512;
#endif

}  // namespace nibble::quant
