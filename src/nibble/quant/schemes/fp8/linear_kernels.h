#pragma once

#include <cstddef>
#include <cstdint>

#include "nibble/quant/schemes/common/kernel_types.h"

// What crosses into the files compiled for one instruction set: plain data
// and plain functions.
//
// All kernels multiply in float32. An E4M3 code becomes a float32 with the same
// sign, exponent bits and mantissa bits, which takes shifts and masks only:
//   code     S     EEEE MMM               value (E > 0) = 1.MMM * 2^(E - 7)
//   float32  S 0000EEEE MMM00000 ...      value         = 1.MMM * 2^(E - 127)
// so the float is the code's value * 2^-120; subnormal codes become subnormal
// floats of the same ratio. Kernels put half of the missing power of two into
// the activations, which keeps sums far from the subnormal range, and half
// into the scale.
namespace nibble::quant {

inline constexpr float kFp8HalfBias = 0x1p60F;

// Codes of 16 rows stand side by side, a dword a row: a 64-byte run holds 4
// columns, the first in the low byte. Runs follow each other along the
// columns, then come the next 16 rows.
struct Fp8Weights {
  const std::uint8_t* codes;
  const void* scales;  // (tiles, blocks, 16) of scale_kind
  ScaleKind scale_kind;
  std::int64_t columns;  // a multiple of 4
  std::int64_t block;    // columns that share a scale, a multiple of 4; the
  std::int64_t blocks;   // last may have fewer
};

// A few tokens, interleaved.
struct Fp8Inputs {
  const float* values;  // (columns, tokens)
  int tokens;
};

// Columns [first, first + count) of a weight, multiples of 4.
struct ColumnRange {
  std::int64_t first;
  std::int64_t count;
};

struct Fp8Kernels {
  // Tokens of one Fp8Inputs that few and panel take.
  int few_tokens;
  int panel_tokens;
  // out (tokens, 16) = the rows of one tile, for inputs that were multiplied
  // by kFp8HalfBias.
  void (*few)(const Fp8Weights& weights,
              std::int64_t tile,
              const Fp8Inputs& inputs,
              float* out);
  // panel (columns, 16) = the decoded weights of some columns, with scales.
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
