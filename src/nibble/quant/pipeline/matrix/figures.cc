#include "nibble/quant/pipeline/matrix/figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "nibble/base/error.h"
#include "nibble/quant/pipeline/matrix/error_lanes.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

double total(const float (&lanes)[kErrorLanes]) {
  double sum = 0;
  for (const float lane : lanes) {
    sum += static_cast<double>(lane);
  }
  return sum;
}

void add_element(ErrorLanes& lanes, std::size_t lane, float w, float d) {
  const float error = w - d;
  lanes.error[lane] += error * error;
  lanes.weight[lane] += w * w;
  lanes.decoded[lane] += d * d;
  lanes.product[lane] += w * d;
  lanes.max_abs[lane] = std::max(lanes.max_abs[lane], std::fabs(error));
}

// An ErrorFn of float weights.
void f32_errors(const void* weight,
                const float* decoded,
                std::size_t steps,
                ErrorLanes& lanes) {
  const auto* from = static_cast<const float*>(weight);
  for (std::size_t i = 0; i < steps * kErrorLanes; i += kErrorLanes) {
    for (std::size_t lane = 0; lane < kErrorLanes; ++lane) {
      add_element(lanes, lane, from[i + lane], decoded[i + lane]);
    }
  }
}

// The function for weights of a type, or null where they are widened first.
ErrorFn error_function(DType dtype, Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) {
    return dtype == DType::kBF16  ? bf16_errors_avx512
           : dtype == DType::kF32 ? f32_errors_avx512
                                  : nullptr;
  }
  if (isa == Isa::kAvx2) {
    return dtype == DType::kBF16  ? bf16_errors_avx2
           : dtype == DType::kF32 ? f32_errors_avx2
                                  : nullptr;
  }
#else
  static_cast<void>(isa);
#endif
  return dtype == DType::kF32 ? f32_errors : nullptr;
}

// Sums of squares between these lose nothing to the range of float32, neither
// in themselves nor in errors a millionth of them.
constexpr double kLeastPower = 1e-18;
constexpr double kGreatestPower = 1e30;

bool in_float_range(const ErrorSums& sums) {
  return sums.weight >= kLeastPower && sums.weight <= kGreatestPower &&
         sums.decoded >= kLeastPower && sums.decoded <= kGreatestPower;
}

// A run whose squares float32 cannot hold: tiny, huge, or zero.
ErrorSums measure_wide(std::span<const float> weight,
                       std::span<const float> decoded) {
  ErrorSums sums;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const double w = weight[i];
    const double d = decoded[i];
    sums.error += (w - d) * (w - d);
    sums.weight += w * w;
    sums.decoded += d * d;
    sums.product += w * d;
    sums.max_abs = std::max(sums.max_abs, static_cast<float>(std::fabs(w - d)));
  }
  return sums;
}

ErrorSums measure_run(ConstTensorView weight,
                      std::span<const float> decoded,
                      Isa isa) {
  ErrorFn function = error_function(weight.dtype(), isa);
  std::array<float, kErrorRun> wide;  // filled where it is used
  const std::size_t count = decoded.size();
  const auto widen = [&] {
    const auto values = std::span(wide).first(count);
    convert_to_float(weight, values);
    return values;
  };
  const void* from = weight.data();
  if (function == nullptr) {
    from = widen().data();
    function = error_function(DType::kF32, isa);
  }
  ErrorLanes lanes;
  const std::size_t steps = count / kErrorLanes;
  function(from, decoded.data(), steps, lanes);
  if (steps * kErrorLanes < count) {
    const auto values = widen();
    for (std::size_t i = steps * kErrorLanes; i < count; ++i) {
      add_element(lanes, i - steps * kErrorLanes, values[i], decoded[i]);
    }
  }
  const ErrorSums run{
      total(lanes.error),
      total(lanes.weight),
      total(lanes.decoded),
      total(lanes.product),
      *std::max_element(std::begin(lanes.max_abs), std::end(lanes.max_abs))};
  return in_float_range(run) ? run : measure_wide(widen(), decoded);
}

// Exponent bits of a non-finite value, by element type.
template <typename Bits>
struct Pattern {
  Bits exponent;
  Bits mantissa;
};

template <typename Bits>
bool no_full_exponent(std::span<const Bits> values, Bits exponent) {
  Bits found = 0;
  for (const Bits value : values) {
    found = static_cast<Bits>(
        found | ((value & exponent) == exponent ? Bits{1} : Bits{0}));
  }
  return found == 0;
}

template <typename Bits>
NonFinite scan(std::span<const Bits> values, Pattern<Bits> pattern) {
  NonFinite result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if ((values[i] & pattern.exponent) != pattern.exponent) {
      continue;
    }
    const bool nan = (values[i] & pattern.mantissa) != 0;
    (nan ? result.nan_count : result.inf_count) += 1;
    if (result.first < 0) {
      result.first = static_cast<std::int64_t>(i);
      result.first_is_nan = nan;
    }
  }
  return result;
}

constexpr Pattern<std::uint32_t> kF32{0x7F800000U, 0x007FFFFFU};
constexpr Pattern<std::uint16_t> kBF16{0x7F80U, 0x007FU};
constexpr Pattern<std::uint16_t> kF16{0x7C00U, 0x03FFU};

}  // namespace

ErrorSums& ErrorSums::operator+=(const ErrorSums& other) {
  error += other.error;
  weight += other.weight;
  decoded += other.decoded;
  product += other.product;
  max_abs = std::max(max_abs, other.max_abs);
  return *this;
}

void add_errors(ErrorSums& sums,
                std::span<const float> weight,
                std::span<const float> decoded) {
  add_errors(sums,
             ConstTensorView(reinterpret_cast<const std::byte*>(weight.data()),
                             DType::kF32,
                             {static_cast<std::int64_t>(weight.size())}),
             decoded,
             Isa::kPortable);
}

void add_errors(ErrorSums& sums,
                ConstTensorView weight,
                std::span<const float> decoded,
                Isa isa) {
  NIBBLE_ASSERT(static_cast<std::size_t>(weight.elements()) == decoded.size());
  const std::size_t element = dtype_bytes(weight.dtype());
  for (std::size_t at = 0; at < decoded.size(); at += kErrorRun) {
    const std::size_t count = std::min(kErrorRun, decoded.size() - at);
    sums += measure_run({weight.data() + at * element,
                         weight.dtype(),
                         {static_cast<std::int64_t>(count)}},
                        decoded.subspan(at, count),
                        isa);
  }
}

ErrorFigures figures_of(const ErrorSums& sums) {
  ErrorFigures figures;
  figures.max_abs = static_cast<double>(sums.max_abs);
  if (sums.weight > 0) {
    figures.relative_mse = sums.error / sums.weight;
  }
  const double norms = std::sqrt(sums.weight) * std::sqrt(sums.decoded);
  if (norms > 0) {
    figures.cosine = std::min(1.0, sums.product / norms);
  } else if (sums.weight > 0) {
    figures.cosine = 0;  // everything was rounded to zero
  }
  return figures;
}

NonFinite find_non_finite(ConstTensorView values) {
  switch (values.dtype()) {
    case DType::kF32:
      return scan<std::uint32_t>(values.raw<std::uint32_t>(), kF32);
    case DType::kF16:
      return scan<std::uint16_t>(values.raw<std::uint16_t>(), kF16);
    case DType::kBF16:
      return scan<std::uint16_t>(values.raw<std::uint16_t>(), kBF16);
    default:
      return {};
  }
}

bool all_finite(ConstTensorView values) {
  switch (values.dtype()) {
    case DType::kF32:
      return no_full_exponent<std::uint32_t>(values.raw<std::uint32_t>(),
                                             kF32.exponent);
    case DType::kF16:
      return no_full_exponent<std::uint16_t>(values.raw<std::uint16_t>(),
                                             kF16.exponent);
    case DType::kBF16:
      return no_full_exponent<std::uint16_t>(values.raw<std::uint16_t>(),
                                             kBF16.exponent);
    default:
      return true;
  }
}

}  // namespace nibble::quant
