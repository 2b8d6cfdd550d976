#pragma once

#include <cstdint>

// Loops over the activations of a token, compiled once for each set of
// instructions; all give the same bits. Plain data and functions only, as in
// kernel_types.h.
namespace nibble::quant {

struct InputLoops {
  // Largest absolute value; NaN when a value is NaN, 0 for none.
  float (*absolute_maximum)(const float* values, std::int64_t count);
  // rounded = the nearest E4M3 number to value / scale, ties to even,
  // saturating at +-448, times scale. rounded may be values.
  void (*round_fp8)(const float* values,
                    std::int64_t count,
                    float scale,
                    float* rounded);
  // codes = value * factor rounded to the nearest integer; the results must
  // fit into 16 bits.
  void (*codes16)(const float* values,
                  std::int64_t count,
                  float factor,
                  std::int16_t* codes);
  // codes = value / scale clamped to -128..127, rounded half to even.
  void (*codes8)(const float* values,
                 std::int64_t count,
                 float scale,
                 std::int16_t* codes);
  std::int32_t (*sum)(const std::int16_t* codes, std::int64_t count);
};

extern const InputLoops kInputLoopsPortable;
#if defined(__x86_64__)
extern const InputLoops kInputLoopsAvx2;
extern const InputLoops kInputLoopsAvx512;
#endif

}  // namespace nibble::quant
