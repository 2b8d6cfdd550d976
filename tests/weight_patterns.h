#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "nibble/tensor/convert.h"
#include "nibble/tensor/tensor.h"

namespace nibble {

// A kind of weights that tests of schemes run on. All values are finite in the
// type they are made for.
struct WeightPattern {
  std::string name;
  std::function<float(std::mt19937& random, DType dtype)> value;
};

inline float greatest_finite(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 65504.0F;
    case DType::kBF16:
      return 0x1.FEp127F;
    default:
      return std::numeric_limits<float>::max();
  }
}

inline float least_subnormal(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x1p-24F;
    case DType::kBF16:
      return 0x1p-133F;
    default:
      return 0x1p-149F;
  }
}

inline std::vector<WeightPattern> weight_patterns() {
  const auto uniform = [](std::mt19937& random, float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  return {
      {"Gaussian",
       [](std::mt19937& random, DType) {
         return std::normal_distribution<float>(0, 0.02F)(random);
       }},
      {"Zeros", [](std::mt19937&, DType) { return 0.0F; }},
      {"NegativeZeros", [](std::mt19937&, DType) { return -0.0F; }},
      {"Positive",
       [=](std::mt19937& random, DType) { return uniform(random, 0.5F, 1); }},
      {"Negative",
       [=](std::mt19937& random, DType) { return uniform(random, -3, -2); }},
      // Multiples of a half: quotients full of ties.
      {"Halves",
       [=](std::mt19937& random, DType) {
         return std::nearbyint(uniform(random, -15, 15)) / 2;
       }},
      {"Subnormal",
       [=](std::mt19937& random, DType dtype) {
         return std::nearbyint(uniform(random, -40, 40)) *
                least_subnormal(dtype);
       }},
      {"NearTheLeastNormal",
       [=](std::mt19937& random, DType dtype) {
         return uniform(random, -4096, 4096) * least_subnormal(dtype);
       }},
      {"NearTheGreatest",
       [=](std::mt19937& random, DType dtype) {
         return uniform(random, -1, 1) * greatest_finite(dtype);
       }},
      {"Extremes",
       [](std::mt19937& random, DType dtype) {
         return (random() & 1U) != 0 ? greatest_finite(dtype)
                                     : -greatest_finite(dtype);
       }},
      // Every exponent: one large weight beside tiny ones.
      {"AllExponents",
       [=](std::mt19937& random, DType dtype) {
         const float least = std::log2(least_subnormal(dtype));
         const float most = std::log2(greatest_finite(dtype));
         const float magnitude =
             std::exp2(uniform(random, least, most - 0.01F));
         return (random() & 1U) != 0 ? magnitude : -magnitude;
       }},
  };
}

inline Tensor make_weight(const WeightPattern& pattern,
                          DType dtype,
                          std::int64_t rows,
                          std::int64_t columns,
                          std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (float& value : values) {
    value = pattern.value(random, dtype);
  }
  Tensor tensor(dtype, {rows, columns});
  convert_from_float(values, tensor.view());
  return tensor;
}

}  // namespace nibble
