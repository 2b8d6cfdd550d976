#include "nibble/tensor/convert.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace nibble {
namespace {

// All values of an 8-bit float with the given exponent bits and bias.
std::array<float, 256> float8_table(int exponent_bits, int bias) {
  std::array<float, 256> table{};
  const int mantissa_bits = 7 - exponent_bits;
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code & 0x7F) >> mantissa_bits;
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    const int implicit = exponent == 0 ? 0 : 1 << mantissa_bits;
    const float magnitude =
        std::ldexp(static_cast<float>(implicit + mantissa),
                   std::max(exponent, 1) - bias - mantissa_bits);
    table[static_cast<std::size_t>(code)] =
        code >= 128 ? -magnitude : magnitude;
  }
  return table;
}

const std::array<float, 256>& e4m3_table() {
  static const std::array<float, 256> table = [] {
    auto values = float8_table(4, 7);
    values[0x7F] = std::numeric_limits<float>::quiet_NaN();
    values[0xFF] = -std::numeric_limits<float>::quiet_NaN();
    return values;
  }();
  return table;
}

const std::array<float, 256>& e5m2_table() {
  static const std::array<float, 256> table = [] {
    auto values = float8_table(5, 15);
    for (const int sign : {0, 0x80}) {
      const float factor = sign == 0 ? 1.0F : -1.0F;
      const auto at = static_cast<std::size_t>(sign + 0x7C);
      values[at] = factor * std::numeric_limits<float>::infinity();
      for (std::size_t i = 1; i < 4; ++i) {
        values[at + i] = factor * std::numeric_limits<float>::quiet_NaN();
      }
    }
    return values;
  }();
  return table;
}

template <typename T, typename Convert>
void map_elements(ConstTensorView from, std::span<float> to, Convert convert) {
  const auto source = from.raw<T>();
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = convert(source[i]);
  }
}

}  // namespace

float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide =
      exponent == 31 ? 0x7F800000u : (exponent + 112) << 23;
  return std::bit_cast<float>(sign | wide | (mantissa << 13));
}

std::uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<std::uint16_t>(sign | 0x7E00u);
  }
  if (magnitude >= 0x477FF000u) {  // rounds to 65536 or more
    return static_cast<std::uint16_t>(sign | 0x7C00u);
  }
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal steps of 2^-24
    const float steps = std::bit_cast<float>(magnitude) * 0x1p24F;
    return static_cast<std::uint16_t>(
        sign | static_cast<std::uint32_t>(std::nearbyint(steps)));
  }
  const std::uint32_t rounded =
      magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - (112u << 23);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

float f8e4m3_to_float(std::uint8_t bits) { return e4m3_table()[bits]; }

float f8e5m2_to_float(std::uint8_t bits) { return e5m2_table()[bits]; }

std::uint8_t float_to_f8e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return 0x7F;
  }
  if (magnitude >= 0x43E00000u) {  // 448 and above saturate
    return static_cast<std::uint8_t>(sign | 0x7Eu);
  }
  if (magnitude < 0x3C800000u) {  // below 2^-6: subnormal steps of 2^-9
    const float steps = std::bit_cast<float>(magnitude) * 512.0F;
    return static_cast<std::uint8_t>(
        sign | static_cast<std::uint32_t>(std::nearbyint(steps)));
  }
  const std::uint32_t rounded =
      magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u) - (120u << 23);
  return static_cast<std::uint8_t>(sign | std::min(rounded >> 20, 0x7Eu));
}

void convert_to_float(ConstTensorView from, std::span<float> to) {
  NIBBLE_CHECK(static_cast<std::size_t>(from.elements()) == to.size(),
               kInternal,
               "conversion: found {} elements, expected {}",
               from.elements(),
               to.size());
  const auto plain = [](auto x) { return static_cast<float>(x); };
  switch (from.dtype()) {
    case DType::kF32:
      std::copy_n(from.as<float>().begin(), to.size(), to.begin());
      return;
    case DType::kBF16:
      return map_elements<std::uint16_t>(from, to, bf16_to_float);
    case DType::kF16:
      return map_elements<std::uint16_t>(from, to, f16_to_float);
    case DType::kF8E4M3:
      return map_elements<std::uint8_t>(from, to, f8e4m3_to_float);
    case DType::kF8E5M2:
      return map_elements<std::uint8_t>(from, to, f8e5m2_to_float);
    case DType::kF64:
      return map_elements<double>(from, to, plain);
    case DType::kI8:
      return map_elements<std::int8_t>(from, to, plain);
    case DType::kU8:
      return map_elements<std::uint8_t>(from, to, plain);
    case DType::kI32:
      return map_elements<std::int32_t>(from, to, plain);
    case DType::kI64:
      return map_elements<std::int64_t>(from, to, plain);
    default:
      fail(ErrorCode::kUnsupported,
           "conversion: found {}, expected a float or integer type",
           dtype_name(from.dtype()));
  }
}

void convert_from_float(std::span<const float> from, TensorView to) {
  NIBBLE_CHECK(static_cast<std::size_t>(to.elements()) == from.size(),
               kInternal,
               "conversion: found {} elements, expected {}",
               from.size(),
               to.elements());
  switch (to.dtype()) {
    case DType::kF32:
      std::copy(from.begin(), from.end(), to.as<float>().begin());
      return;
    case DType::kBF16:
      std::transform(from.begin(),
                     from.end(),
                     to.raw<std::uint16_t>().begin(),
                     float_to_bf16);
      return;
    case DType::kF16:
      std::transform(from.begin(),
                     from.end(),
                     to.raw<std::uint16_t>().begin(),
                     float_to_f16);
      return;
    default:
      fail(ErrorCode::kUnsupported,
           "conversion: found {}, expected F32, F16 or BF16",
           dtype_name(to.dtype()));
  }
}

float round_to(DType dtype, float value) {
  switch (dtype) {
    case DType::kF32:
      return value;
    case DType::kBF16:
      return round_to_bf16(value);
    case DType::kF16:
      return f16_to_float(float_to_f16(value));
    default:
      fail(ErrorCode::kUnsupported,
           "rounding: found {}, expected F32, F16 or BF16",
           dtype_name(dtype));
  }
}

}  // namespace nibble
