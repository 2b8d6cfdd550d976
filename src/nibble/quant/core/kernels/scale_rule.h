#pragma once

#include <cstddef>
#include <cstdint>

#include "nibble/quant/core/number_spec.h"

namespace nibble::quant {

// How the range of the weights that share a scale becomes that scale and zero
// point (docs/numerics.md). The result is always finite, the scale greater than
// zero, and every code decodes to a finite value of weight_dtype.
struct ScaleRule {
  float low = -8;  // least code value: -2^(bits-1), or -448 for FP8
  float high = 7;  // greatest: 2^(bits-1) - 1, or 448
  bool symmetric = true;
  Numerics numerics = Numerics::kExact;
  DType weight_dtype = DType::kBF16;
  DType scale_dtype = DType::kBF16;
};

// The rule of a spec for weights of a dtype.
[[nodiscard]] ScaleRule scale_rule(const NumberSpec& spec,
                                   Numerics numerics,
                                   DType weight_dtype);

struct ScaleAndZero {
  float scale = 1;
  std::int8_t zero = 0;
};

// low <= high: least and greatest of the weights. kInternal unless both are
// finite.
[[nodiscard]] ScaleAndZero choose_scale(const ScaleRule& rule,
                                        float low,
                                        float high);

// choose_scale for `count` ranges. zeros may be null when symmetric. Whether
// all scales are within kLeastFastScale and kGreatestFastScale (code_runs.h).
[[nodiscard]] bool choose_scales(const ScaleRule& rule,
                                 const float* low,
                                 const float* high,
                                 std::size_t count,
                                 float* scales,
                                 std::int8_t* zeros);

}  // namespace nibble::quant
