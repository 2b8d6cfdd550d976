#include "nibble/quant/schemes/integer/codes.h"

#include <bit>

#include "nibble/quant/schemes/integer/codes_x86.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant::integer {
namespace {

// The three types of weights: how elements are read, and the type's rounding
// of a float32 result.
struct F32 {
  using Stored = float;

  static float load(float x) { return x; }

  static float round(float x) { return x; }
};

struct BF16 {
  using Stored = std::uint16_t;

  static float load(std::uint16_t x) { return bf16_to_float(x); }

  static float round(float x) { return round_to_bf16(x); }
};

struct F16 {
  using Stored = std::uint16_t;

  static float load(std::uint16_t x) { return f16_to_float(x); }

  static float round(float x) { return round_to(DType::kF16, x); }
};

// The integer nearest to x, ties to even, as a byte; |x| < 2^22. Adding
// 1.5 * 2^23 leaves the integer in the low bits of the float.
std::uint8_t rounded_byte(float x) {
  return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(x + 0x1.8p23F));
}

// Clamping first gives the same as rounding first, since limits are integers.
float clamped(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

template <typename Type, bool kReference>
void fill(const CodeRuns& job) {
  const auto* weight = static_cast<const typename Type::Stored*>(job.weight);
  std::uint8_t* codes = job.codes;
  for (std::size_t r = 0; r < job.runs; ++r) {
    const float scale = job.scales[r];
    const int zero = job.zeros == nullptr ? 0 : job.zeros[r];
    const auto shift = static_cast<float>(zero);
    // Limits of what is rounded: of the code, or of the code less zero.
    const auto low = static_cast<float>(kReference ? job.low : job.low - zero);
    const auto high =
        static_cast<float>(kReference ? job.high : job.high - zero);
    const std::uint8_t offset =
        kReference ? 0 : static_cast<std::uint8_t>(zero);
    for (std::size_t i = 0; i < job.length; ++i) {
      float x = Type::load(weight[i]) / scale;
      if constexpr (kReference) {
        x = Type::round(Type::round(x) + shift);
      }
      codes[i] = static_cast<std::uint8_t>(rounded_byte(clamped(x, low, high)) +
                                           offset);
    }
    weight += job.length;
    codes += job.length;
  }
}

constexpr CodeKernels kPortable = {{fill<F32, false>, fill<F32, true>},
                                   {fill<F16, false>, fill<F16, true>},
                                   {fill<BF16, false>, fill<BF16, true>},
                                   {fill<BF16, false>, fill<BF16, true>}};

void values(const std::uint8_t* codes,
            std::size_t count,
            float zero,
            float scale,
            float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    // The difference of two bytes is exact.
    out[i] =
        (static_cast<float>(static_cast<std::int8_t>(codes[i])) - zero) * scale;
  }
}

}  // namespace

CodeFunctions code_functions(DType dtype,
                             DType scale_dtype,
                             Numerics numerics,
                             Isa isa) {
  CodeKernels fast{};
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) {
    fast = code_kernels_avx512();
  } else if (isa == Isa::kAvx2) {
    fast = code_kernels_avx2();
  }
#else
  static_cast<void>(isa);
#endif
  return pick_functions(kPortable, fast, dtype, scale_dtype, numerics);
}

ValueFn value_function(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) {
    return values_avx512;
  }
  if (isa == Isa::kAvx2) {
    return values_avx2;
  }
#else
  static_cast<void>(isa);
#endif
  return values;
}

}  // namespace nibble::quant::integer
