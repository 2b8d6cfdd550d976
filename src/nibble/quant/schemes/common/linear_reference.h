#pragma once

// For tests and benchmarks of layers only: random codes of any spec, the exact
// product in double, and plain quantizers of activations, written apart from
// the kernels.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "nibble/quant/core/scheme.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {

// Codes over the whole range, scales near 0.01 with both signs of zero point.
inline Quantized random_codes(const NumberSpec& spec,
                              std::int64_t rows,
                              std::int64_t columns,
                              std::uint32_t seed) {
  std::mt19937 random(seed);
  Quantized made;
  made.spec = spec;
  made.rows = rows;
  made.columns = columns;
  const int limit = 1 << (spec.bits - 1);
  std::uniform_int_distribution<int> code(-limit, limit - 1);
  const auto any_code = [&]() -> std::uint8_t {
    const auto bits = static_cast<std::uint8_t>(code(random));
    return spec.floating && (bits & 0x7Fu) == 0x7Fu ? 0x55 : bits;
  };
  made.codes =
      Tensor(spec.floating ? DType::kF8E4M3 : DType::kI8, {rows, columns});
  for (std::uint8_t& value : made.codes.view().raw<std::uint8_t>()) {
    value = any_code();
  }
  const ScaleGrid grid = scale_grid(spec, rows, columns);
  std::vector<float> scales(static_cast<std::size_t>(grid.rows * grid.columns));
  std::uniform_real_distribution<float> scale(0.002F, 0.02F);
  for (float& value : scales) {
    value = scale(random);
  }
  made.scales = Tensor(spec.scale_dtype, {grid.rows, grid.columns});
  convert_from_float(scales, made.scales.view());
  if (!spec.symmetric) {
    made.zeros = Tensor(DType::kI8, {grid.rows, grid.columns});
    for (std::int8_t& value : made.zeros->view().as<std::int8_t>()) {
      value = static_cast<std::int8_t>(code(random));
    }
  }
  return made;
}

// Rows of a whole Quantized, as a checkpoint would give them.
inline RowSource source_of(const Quantized& whole) {
  return [&whole](std::int64_t first, std::int64_t count) {
    const ScaleGrid grid = scale_grid(whole.spec, whole.rows, whole.columns);
    const std::int64_t grid_first =
        grid.rows == 1 ? 0 : first / grid.rows_per_scale;
    const std::int64_t grid_count =
        grid.rows == 1
            ? 1
            : (count + grid.rows_per_scale - 1) / grid.rows_per_scale;
    Quantized slab;
    slab.spec = whole.spec;
    slab.rows = count;
    slab.columns = whole.columns;
    slab.codes =
        Tensor::copy_of(std::as_const(whole.codes).view().rows(first, count));
    slab.scales = Tensor::copy_of(
        std::as_const(whole.scales).view().rows(grid_first, grid_count));
    if (whole.zeros) {
      slab.zeros = Tensor::copy_of(
          std::as_const(*whole.zeros).view().rows(grid_first, grid_count));
    }
    return slab;
  };
}

// (code - zero) * scale of every weight, (rows, columns).
inline std::vector<double> exact_weights(const Quantized& whole) {
  const ScaleGrid grid = scale_grid(whole.spec, whole.rows, whole.columns);
  const auto values = [](const Tensor& tensor) {
    std::vector<float> out(static_cast<std::size_t>(tensor.shape().elements()));
    convert_to_float(tensor.view(), out);
    return out;
  };
  const std::vector<float> codes = values(whole.codes);
  const std::vector<float> scales = values(whole.scales);
  const std::vector<float> zeros =
      whole.zeros ? values(*whole.zeros) : std::vector<float>(scales.size());
  std::vector<double> weights(codes.size());
  for (std::int64_t row = 0; row < whole.rows; ++row) {
    for (std::int64_t column = 0; column < whole.columns; ++column) {
      const std::int64_t at = row / grid.rows_per_scale * grid.columns +
                              column / grid.columns_per_scale;
      const std::int64_t i = row * whole.columns + column;
      weights[i] = (static_cast<double>(codes[i]) - zeros[at]) * scales[at];
    }
  }
  return weights;
}

// Activations near normal, with an outlier in each token.
inline std::vector<float> random_activations(std::int64_t tokens,
                                             std::int64_t columns,
                                             std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> x(static_cast<std::size_t>(tokens * columns));
  for (float& value : x) {
    value = normal(random);
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    x[t * columns + (7 * t + 3) % columns] *= 20;
  }
  return x;
}

// What inputs of this spec become: each value's code times its scale, by the
// rules of docs/formats/compressed-tensors.md.
inline std::vector<double> reference_inputs(const NumberSpec& input,
                                            float static_scale,
                                            const std::vector<float>& x,
                                            std::int64_t columns) {
  const std::int64_t run = input.grain == Grain::kGroup ? input.group : columns;
  std::vector<double> values(x.size());
  for (std::size_t begin = 0; begin < x.size();) {
    const std::size_t left =
        static_cast<std::size_t>(columns) - begin % columns;
    const std::size_t end =
        begin + std::min(static_cast<std::size_t>(run), left);
    float most = 0;
    for (std::size_t i = begin; i < end; ++i) {
      most = std::max(most, std::fabs(x[i]));
    }
    float scale = most / (input.floating ? 448.0F : 127.5F);
    scale = scale == 0 ? 0x1p-23F : scale;
    scale = input.grain == Grain::kTensor ? static_scale : scale;
    for (std::size_t i = begin; i < end; ++i) {
      const float quotient = x[i] / scale;
      const float code =
          input.floating
              ? f8e4m3_to_float(float_to_f8e4m3(quotient))
              : std::nearbyintf(std::clamp(quotient, -128.0F, 127.0F));
      values[i] = static_cast<double>(code) * scale;
    }
    begin = end;
  }
  return values;
}

struct ExactProduct {
  std::vector<double> values;  // (tokens, rows)
  std::vector<double> sizes;   // |x| |w|, (tokens, rows)
};

inline ExactProduct exact_product(const std::vector<double>& x,
                                  const std::vector<double>& weights,
                                  std::int64_t rows,
                                  std::int64_t columns) {
  const auto tokens = static_cast<std::int64_t>(x.size()) / columns;
  ExactProduct product;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      double squares = 0;
      double weight_squares = 0;
      for (std::int64_t i = 0; i < columns; ++i) {
        const double value = x[t * columns + i];
        const double weight = weights[row * columns + i];
        sum += value * weight;
        squares += value * value;
        weight_squares += weight * weight;
      }
      product.values.push_back(sum);
      product.sizes.push_back(std::sqrt(squares * weight_squares));
    }
  }
  return product;
}

// The largest |found - exact| of a product, relative to |x| |w|: the scale on
// which rounding errors of a sum of products live.
inline double worst_error(const std::vector<float>& found,
                          const ExactProduct& exact) {
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double error = std::fabs(found[i] - exact.values[i]);
    const double size = exact.sizes[i];
    const double relative = size > 0 ? error / size : (error > 0 ? 1.0 : 0.0);
    worst = std::isnan(error) ? 1e30 : std::max(worst, relative);
  }
  return worst;
}

}  // namespace nibble::quant
