#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "nibble/tensor/view.h"

namespace nibble {

// ---- BF16: the upper half of a float32 ------------------------------------

[[nodiscard]] inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Nearest, ties to even; NaN stays a (quiet) NaN.
[[nodiscard]] inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >>
                                    16);
}

// value rounded to the nearest BF16, as a float32.
[[nodiscard]] inline float round_to_bf16(float value) {
  return bf16_to_float(float_to_bf16(value));
}

// ---- F16: IEEE 754 binary16 -----------------------------------------------

[[nodiscard]] float f16_to_float(std::uint16_t bits);
// Nearest, ties to even; overflow gives infinity.
[[nodiscard]] std::uint16_t float_to_f16(float value);

// ---- FP8 E4M3 ("fn": no infinity, NaN = 0x7F and 0xFF, largest 448) -------
// Bits: sign 1, exponent 4 (bias 7), mantissa 3. Exponent 0 is subnormal:
// mantissa * 2^-9.

inline constexpr float kF8E4M3Max = 448.0F;

[[nodiscard]] float f8e4m3_to_float(std::uint8_t bits);
// Nearest, ties to even; saturates at +-448; NaN gives 0x7F.
[[nodiscard]] std::uint8_t float_to_f8e4m3(float value);

[[nodiscard]] float f8e5m2_to_float(std::uint8_t bits);

// ---- Whole tensors ---------------------------------------------------------

// Converts elements of from (F32, F16, BF16, F8_E4M3, F8_E5M2, F64, I8, U8,
// I32 or I64) to float32. Sizes must agree; kUnsupported for another dtype.
void convert_to_float(ConstTensorView from, std::span<float> to);

// Rounds float32 to the dtype of to (F32, F16 or BF16), nearest even.
void convert_from_float(std::span<const float> from, TensorView to);

// value rounded to F32, F16 or BF16 and back; kUnsupported otherwise.
[[nodiscard]] float round_to(DType dtype, float value);

}  // namespace nibble
