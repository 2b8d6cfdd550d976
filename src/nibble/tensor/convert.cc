#include "nibble/tensor/convert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace nibble {
namespace {

// Two to an integer power, exact for the small powers of 8-bit floats.
constexpr float power_of_two(int exponent) {
  float value = 1.0F;
  for (; exponent > 0; --exponent) {
    value *= 2.0F;
  }
  for (; exponent < 0; ++exponent) {
    value *= 0.5F;
  }
  return value;
}

using Float8Table = std::array<float, 256>;

// All finite values of an 8-bit float with these exponent bits and bias.
constexpr Float8Table float8_table(int exponent_bits, int bias) {
  Float8Table table{};
  const int mantissa_bits = 7 - exponent_bits;
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> mantissa_bits;
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    const int implicit = exponent == 0 ? 0 : 1 << mantissa_bits;
    const float magnitude =
        static_cast<float>(implicit + mantissa) *
        power_of_two((exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
    table[static_cast<std::size_t>(code)] = magnitude;
    table[static_cast<std::size_t>(code + 128)] = -magnitude;
  }
  return table;
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr Float8Table kE4M3Table = [] {
  Float8Table table = float8_table(4, 7);
  table[0x7F] = kNaN;
  table[0xFF] = -kNaN;
  return table;
}();

constexpr Float8Table kE5M2Table = [] {
  Float8Table table = float8_table(5, 15);
  table[0x7C] = kInfinity;
  table[0xFC] = -kInfinity;
  for (std::size_t i = 0x7D; i <= 0x7F; ++i) {
    table[i] = kNaN;
    table[i + 0x80] = -kNaN;
  }
  return table;
}();

template <typename T, typename Convert>
void map_elements(ConstTensorView from, std::span<float> to, Convert convert) {
  const auto source = from.raw<T>();
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = convert(source[i]);
  }
}

}  // namespace

// No branches, so that loops over it use vectors. The bits moved into place
// make a float32 that is 2^112 too small, subnormals included; infinities and
// NaNs then need the full exponent.
float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t moved = static_cast<std::uint32_t>(bits & 0x7FFFu) << 13;
  const std::uint32_t scaled =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(moved) * 0x1p112F);
  const std::uint32_t special = moved >= 0x0F800000u ? 0x7F800000u : 0u;
  return std::bit_cast<float>(sign | scaled | special);
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
    // 0.5 has that step, too: the sum is rounded to it, as wanted.
    const float sum = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(
        sign | (std::bit_cast<std::uint32_t>(sum) - 0x3F000000u));
  }
  const std::uint32_t rounded =
      magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - (112u << 23);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

float f8e4m3_to_float(std::uint8_t bits) {
  return kE4M3Table[bits];
}

float f8e5m2_to_float(std::uint8_t bits) {
  return kE5M2Table[bits];
}

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
    // 2^14 has that step, too: the sum is rounded to it, as wanted.
    const float sum = std::bit_cast<float>(magnitude) + 0x1p14F;
    return static_cast<std::uint8_t>(
        sign | (std::bit_cast<std::uint32_t>(sum) - 0x46800000u));
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
