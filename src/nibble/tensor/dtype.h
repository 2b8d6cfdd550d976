#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace nibble {

// Element types as they are stored. A code of fewer than 8 bits is not a
// DType of a weight: packed codes are bytes or words that a format explains.
// The sub-byte types exist so that files holding them can be copied.
enum class DType : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// Bits of one element.
[[nodiscard]] int dtype_bits(DType dtype);

// Bytes of one element; asserts that dtype is not a sub-byte type.
[[nodiscard]] std::size_t dtype_bytes(DType dtype);

// Name in a safetensors header: "BF16", "F8_E4M3" ...
[[nodiscard]] std::string_view dtype_name(DType dtype);

// The type of that name, or nothing.
[[nodiscard]] std::optional<DType> dtype_from_name(std::string_view name);

// F16, BF16 and F32: what a weight to quantize may be.
[[nodiscard]] bool is_weight_dtype(DType dtype);

}  // namespace nibble
