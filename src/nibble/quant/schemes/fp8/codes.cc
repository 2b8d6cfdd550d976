#include "nibble/quant/schemes/fp8/codes.h"

#include <array>

#include "nibble/quant/schemes/fp8/codes_x86.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant::fp8 {
namespace {

template <DType kType>
float load(const void* weight, std::size_t i) {
  if constexpr (kType == DType::kF32) {
    return static_cast<const float*>(weight)[i];
  } else {
    const std::uint16_t bits = static_cast<const std::uint16_t*>(weight)[i];
    return kType == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
  }
}

template <DType kType, bool kReference>
void fill(const CodeRuns& job) {
  for (std::size_t r = 0; r < job.runs; ++r) {
    const std::size_t first = r * job.length;
    for (std::size_t i = first; i < first + job.length; ++i) {
      float x = load<kType>(job.weight, i) / job.scales[r];
      if constexpr (kReference) {
        x = kType == DType::kBF16 ? round_to_bf16(x) : round_to(kType, x);
      }
      job.codes[i] = float_to_f8e4m3(x);
    }
  }
}

constexpr CodeKernels kPortable = {
    {fill<DType::kF32, false>, fill<DType::kF32, true>},
    {fill<DType::kF16, false>, fill<DType::kF16, true>},
    {fill<DType::kBF16, false>, fill<DType::kBF16, true>},
    {fill<DType::kBF16, false>, fill<DType::kBF16, true>}};

void values(const std::uint8_t* codes,
            std::size_t count,
            float /*zero*/,
            float scale,
            float* out) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> all{};
    for (std::size_t code = 0; code < all.size(); ++code) {
      all[code] = f8e4m3_to_float(static_cast<std::uint8_t>(code));
    }
    return all;
  }();
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = table[codes[i]] * scale;
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

}  // namespace nibble::quant::fp8
