#include "nibble/quant/core/kernels/ranges.h"

#include <bit>

#include "nibble/base/error.h"
#include "nibble/quant/core/kernels/ranges_x86.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

// Floats of a 16- or 32-bit type, read as integers with the same order: the
// magnitude bits of negative numbers are flipped.
template <typename Bits>
Bits ordered(Bits bits) {
  constexpr int kShift = sizeof(Bits) * 8 - 1;
  constexpr auto kMagnitude = static_cast<Bits>(~(Bits{1} << kShift));
  return static_cast<Bits>(bits ^ ((bits >> kShift) & kMagnitude));
}

float to_float(DType dtype, std::int32_t bits) {
  switch (dtype) {
    case DType::kF32:
      return std::bit_cast<float>(bits);
    case DType::kBF16:
      return bf16_to_float(static_cast<std::uint16_t>(bits));
    default:
      return f16_to_float(static_cast<std::uint16_t>(bits));
  }
}

template <typename Bits, DType kType>
void ranges(const void* weight,
            std::size_t runs,
            std::size_t length,
            float* low,
            float* high) {
  const Bits* run = static_cast<const Bits*>(weight);
  for (std::size_t r = 0; r < runs; ++r, run += length) {
    Bits least = ordered(run[0]);
    Bits greatest = least;
    for (std::size_t i = 1; i < length; ++i) {
      const Bits value = ordered(run[i]);
      least = value < least ? value : least;
      greatest = value > greatest ? value : greatest;
    }
    low[r] = to_float(kType, ordered(least));
    high[r] = to_float(kType, ordered(greatest));
  }
}

template <typename Bits, DType kType>
void magnitudes(const void* weight,
                std::size_t runs,
                std::size_t length,
                float* low,
                float* high) {
  constexpr auto kMagnitude =
      static_cast<Bits>(~(Bits{1} << (sizeof(Bits) * 8 - 1)));
  const Bits* run = static_cast<const Bits*>(weight);
  for (std::size_t r = 0; r < runs; ++r, run += length) {
    Bits greatest = 0;
    for (std::size_t i = 0; i < length; ++i) {
      const auto value = static_cast<Bits>(run[i] & kMagnitude);
      greatest = value > greatest ? value : greatest;
    }
    high[r] = to_float(kType, greatest);
    low[r] = -high[r];
  }
}

template <typename Bits, DType kType>
RangeFn portable(bool magnitude) {
  return magnitude ? magnitudes<Bits, kType> : ranges<Bits, kType>;
}

}  // namespace

RangeFn range_function(DType dtype, bool magnitude, Isa isa) {
#if defined(__x86_64__)
  if (dtype == DType::kBF16 && isa == Isa::kAvx512) {
    return magnitude ? bf16_magnitudes_avx512 : bf16_ranges_avx512;
  }
  if (dtype == DType::kBF16 && isa == Isa::kAvx2) {
    return magnitude ? bf16_magnitudes_avx2 : bf16_ranges_avx2;
  }
#else
  static_cast<void>(isa);
#endif
  switch (dtype) {
    case DType::kF32:
      return portable<std::int32_t, DType::kF32>(magnitude);
    case DType::kBF16:
      return portable<std::int16_t, DType::kBF16>(magnitude);
    case DType::kF16:
      return portable<std::int16_t, DType::kF16>(magnitude);
    default:
      fail(ErrorCode::kUnsupported,
           "weights: found {}, expected F32, F16 or BF16",
           dtype_name(dtype));
  }
}

}  // namespace nibble::quant
