#include "nibble/model/rope.h"

#include <cmath>
#include <cstddef>
#include <numbers>

namespace nibble::model {
namespace {

// Llama 3.1's scaling: short waves stay, long ones are stretched by factor,
// those between are blended.
float llama3_scaled(float frequency, const ModelConfig& config) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double low = config.rope_low_freq_factor;
  const double high = config.rope_high_freq_factor;
  const double turns = config.rope_original_positions / wavelength;
  if (turns > high) {
    return frequency;
  }
  const auto stretched = static_cast<float>(frequency / config.rope_factor);
  // With low = high (Llama 4 Scout) nothing lies between them, and the blend
  // below would divide by zero.
  if (turns < low || low == high) {
    return stretched;
  }
  const double keep = (turns - low) / (high - low);
  return static_cast<float>((1 - keep) * stretched + keep * frequency);
}

}  // namespace

std::vector<float> rope_frequencies(const ModelConfig& config) {
  const auto pairs = static_cast<std::size_t>(config.head_dim / 2);
  const auto theta = static_cast<float>(config.rope_theta);
  const auto width = static_cast<float>(config.head_dim);
  std::vector<float> frequencies(pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    const float exponent = static_cast<float>(2 * i) / width;
    const float frequency = 1.0F / std::pow(theta, exponent);
    switch (config.rope_scaling) {
      case RopeScaling::kNone:
        frequencies[i] = frequency;
        break;
      case RopeScaling::kLinear:
        frequencies[i] = static_cast<float>(frequency / config.rope_factor);
        break;
      case RopeScaling::kLlama3:
        frequencies[i] = llama3_scaled(frequency, config);
        break;
    }
  }
  return frequencies;
}

}  // namespace nibble::model
