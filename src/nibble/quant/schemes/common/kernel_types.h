#pragma once

#include <cstdint>

// Plain types that cross into files compiled for one instruction set: no
// inline function may live here, or its AVX-512 copy could be linked into the
// portable program.
namespace nibble::quant {

// Rows of a weight that the kernels compute side by side: one 512-bit vector
// of float32 results, two 256-bit ones.
inline constexpr std::int64_t kTileRows = 16;

// How scales are kept at run time.
enum class ScaleKind : int { kBF16, kF16, kF32 };

}  // namespace nibble::quant
