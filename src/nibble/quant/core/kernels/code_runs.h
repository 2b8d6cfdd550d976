#pragma once

#include <cstddef>
#include <cstdint>

// Plain data only: sources built for one instruction set include this header.
namespace nibble::quant {

// Adjoining runs of weights, each run with a scale of its own, and where their
// codes go. Element i of run r is weight[r * length + i].
struct CodeRuns {
  const void* weight = nullptr;  // float, or bits of BF16 or F16
  std::size_t runs = 0;
  std::size_t length = 0;              // elements a run
  const float* scales = nullptr;       // (runs)
  const std::int8_t* zeros = nullptr;  // (runs); null = symmetric
  int low = 0;                         // limits of the codes
  int high = 0;
  std::uint8_t* codes = nullptr;  // (runs * length) one byte a code
  // Bytes ahead of the weight being coded that kernels ask the cache for: the
  // strip that comes next, so that memory works while codes are computed.
  std::size_t fetch_ahead = 0;
};

// Fills codes. One function for each type of weight, arithmetic and
// instruction set; all give the same bytes.
using CodeFn = void (*)(const CodeRuns&);

// Kernels of a scheme for one instruction set; [0] exact, [1] reference.
struct CodeKernels {
  CodeFn f32[2];
  CodeFn f16[2];
  CodeFn bf16[2];        // any scales
  CodeFn bf16_short[2];  // scales that are BF16 values
};

// Vectorized kernels replace w / scale by a product with the reciprocal and
// one correction step, which gives the correctly rounded quotient while
// nothing overflows or underflows: for scales within these bounds. Weights
// below 2^-100 may come out a unit wrong there, but are then so far below the
// scale that their code is zero all the same. Scales come from ranges, so that
// integer kernels take quotients below 512 for granted.
inline constexpr float kLeastFastScale = 0x1p-60F;
inline constexpr float kGreatestFastScale = 0x1p60F;

// Least and greatest weight of each of `runs` adjoining runs.
using RangeFn = void (*)(const void* weight,
                         std::size_t runs,
                         std::size_t length,
                         float* low,
                         float* high);

}  // namespace nibble::quant
