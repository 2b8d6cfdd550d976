#pragma once

#include <cstdint>
#include <span>

#include "nibble/base/cpu.h"
#include "nibble/tensor/view.h"

namespace nibble::quant {

// How far decoded values are from the weights they stand for. Sums of parts
// are added in a fixed order, so that figures do not depend on threads.
struct ErrorSums {
  double error = 0;    // sum of (weight - decoded)^2
  double weight = 0;   // sum of weight^2
  double decoded = 0;  // sum of decoded^2
  double product = 0;  // sum of weight * decoded
  float max_abs = 0;   // largest |weight - decoded|

  ErrorSums& operator+=(const ErrorSums& other);
  friend bool operator==(const ErrorSums&, const ErrorSums&) = default;
};

// Elements whose sums stay in float32 before they are added to the totals.
inline constexpr std::size_t kErrorRun = 1024;

// Adds elements to sums, in float32 lanes and float64 totals. The result is
// the same for every set of instructions, and for one call or several as long
// as all but the last add a multiple of kErrorRun elements.
void add_errors(ErrorSums& sums,
                std::span<const float> weight,
                std::span<const float> decoded);

// The same for a weight in the type that it is stored in (F32, F16 or BF16).
// isa is what the processor has, or less.
void add_errors(ErrorSums& sums,
                ConstTensorView weight,
                std::span<const float> decoded,
                Isa isa);

// What the receipt states of a layer.
struct ErrorFigures {
  double relative_mse = 0;  // error / weight; 0 for two zeros
  double cosine = 1;        // 1 when both are zero
  double max_abs = 0;
};

[[nodiscard]] ErrorFigures figures_of(const ErrorSums& sums);

// The place of the first NaN or infinity in (rows, columns) elements, and how
// many there are.
struct NonFinite {
  std::int64_t nan_count = 0;
  std::int64_t inf_count = 0;
  std::int64_t first = -1;  // element, row-major; -1 = all are finite
  bool first_is_nan = false;
};

[[nodiscard]] NonFinite find_non_finite(ConstTensorView values);

// Whether every element (F32, F16, BF16) is finite; the quick test.
[[nodiscard]] bool all_finite(ConstTensorView values);

}  // namespace nibble::quant
