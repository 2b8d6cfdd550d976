#include "nibble/model/rope.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace nibble::model {
namespace {

ModelConfig config_of(std::int64_t head_dim, double theta) {
  ModelConfig config;
  config.head_dim = head_dim;
  config.rope_theta = theta;
  return config;
}

TEST(RopeFrequencies, FallGeometrically) {
  // 10000^(-2i/8) for i = 0..3.
  const auto found = rope_frequencies(config_of(8, 10000));
  ASSERT_EQ(found.size(), 4U);
  EXPECT_FLOAT_EQ(found[0], 1.0F);
  EXPECT_FLOAT_EQ(found[1], 0.1F);
  EXPECT_FLOAT_EQ(found[2], 0.01F);
  EXPECT_FLOAT_EQ(found[3], 0.001F);
}

TEST(RopeFrequencies, LinearScalingDividesThemAll) {
  ModelConfig config = config_of(8, 10000);
  config.rope_scaling = RopeScaling::kLinear;
  config.rope_factor = 4;
  const auto found = rope_frequencies(config);
  EXPECT_FLOAT_EQ(found[0], 0.25F);
  EXPECT_FLOAT_EQ(found[3], 0.00025F);
}

TEST(RopeFrequencies, Llama3ScalingKeepsShortAndStretchesLongWaves) {
  // Frequencies 1, 0.1, 0.01, 0.001: wavelengths 6.28, 62.8, 628, 6283. With
  // an original context of 1000 they turn 159, 15.9, 1.59 and 0.159 times:
  // above high = 4 kept, below low = 1 divided by 8, between them blended by
  // (1.5915 - 1) / (4 - 1) = 0.19718.
  ModelConfig config = config_of(8, 10000);
  config.rope_scaling = RopeScaling::kLlama3;
  config.rope_factor = 8;
  config.rope_low_freq_factor = 1;
  config.rope_high_freq_factor = 4;
  config.rope_original_positions = 1000;
  const auto found = rope_frequencies(config);
  EXPECT_FLOAT_EQ(found[0], 1.0F);
  EXPECT_FLOAT_EQ(found[1], 0.1F);
  EXPECT_NEAR(found[2], 0.80282 * 0.00125 + 0.19718 * 0.01, 1e-7);
  EXPECT_FLOAT_EQ(found[3], 0.000125F);
}

TEST(RopeFrequencies, EqualFactorsLeaveNothingToBlend) {
  // As in Llama 4 Scout.
  ModelConfig config = config_of(8, 10000);
  config.rope_scaling = RopeScaling::kLlama3;
  config.rope_factor = 16;
  config.rope_low_freq_factor = 1;
  config.rope_high_freq_factor = 1;
  config.rope_original_positions = 1000;
  const auto found = rope_frequencies(config);
  EXPECT_FLOAT_EQ(found[2], 0.01F);
  EXPECT_FLOAT_EQ(found[3], 0.001F / 16);
  for (const float frequency : found) {
    EXPECT_TRUE(std::isfinite(frequency));
  }
}

}  // namespace
}  // namespace nibble::model
