#include "nibble/quant/core/kernels/scale_rule.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "nibble/quant/core/kernels/code_runs.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

ScaleRule rule_of(int bits,
                  bool symmetric,
                  Numerics numerics,
                  DType weights = DType::kBF16,
                  DType scales = DType::kBF16) {
  NumberSpec spec;
  spec.bits = bits;
  spec.floating = bits == 0;
  spec.bits = bits == 0 ? 8 : bits;
  spec.symmetric = symmetric;
  spec.scale_dtype = scales;
  return scale_rule(spec, numerics, weights);
}

constexpr Numerics kBoth[] = {Numerics::kExact, Numerics::kReference};

TEST(ScaleRule, SpreadsTheGreatestMagnitudeOverHalfTheCodes) {
  for (const Numerics numerics : kBoth) {
    EXPECT_EQ(choose_scale(rule_of(4, true, numerics), -15, 2).scale, 2);
    EXPECT_EQ(choose_scale(rule_of(8, true, numerics), 1, 255).scale, 2);
    EXPECT_EQ(choose_scale(rule_of(3, true, numerics), -1, 7).scale, 2);
    EXPECT_EQ(choose_scale(rule_of(0, true, numerics), -1, 896).scale, 2);
  }
}

TEST(ScaleRule, AsymmetricRangesAlwaysHoldZero) {
  for (const Numerics numerics : kBoth) {
    const ScaleAndZero positive =
        choose_scale(rule_of(4, false, numerics), 20, 30);
    EXPECT_EQ(positive.scale, 2);
    EXPECT_EQ(positive.zero, -8);
    const ScaleAndZero negative =
        choose_scale(rule_of(4, false, numerics), -30, -20);
    EXPECT_EQ(negative.scale, 2);
    EXPECT_EQ(negative.zero, 7);
    const ScaleAndZero both = choose_scale(rule_of(4, false, numerics), -8, 22);
    EXPECT_EQ(both.scale, 2);
    EXPECT_EQ(both.zero, -4);
  }
}

TEST(ScaleRule, ScalesAreRoundedToTheirType) {
  const float quotient = 1.0F / 7.5F;
  EXPECT_EQ(choose_scale(rule_of(4, true, Numerics::kExact), -1, 1).scale,
            round_to_bf16(quotient));
  EXPECT_EQ(
      choose_scale(
          rule_of(4, true, Numerics::kExact, DType::kBF16, DType::kF32), -1, 1)
          .scale,
      quotient);
}

TEST(ScaleRule, AllZerosGetTheEpsilonOfTheScaleType) {
  for (const Numerics numerics : kBoth) {
    for (const bool symmetric : {true, false}) {
      for (const auto& [dtype, epsilon] : {std::pair{DType::kBF16, 0x1p-7F},
                                           std::pair{DType::kF16, 0x1p-10F},
                                           std::pair{DType::kF32, 0x1p-23F}}) {
        const ScaleAndZero chosen = choose_scale(
            rule_of(4, symmetric, numerics, dtype, dtype), 0, -0.0F);
        EXPECT_EQ(chosen.scale, epsilon);
        EXPECT_EQ(chosen.zero, 0);
      }
    }
  }
}

TEST(ScaleRule, ReferenceReplacesOnlyScalesThatRoundToZero) {
  const ScaleRule rule = rule_of(4, true, Numerics::kReference);
  EXPECT_EQ(choose_scale(rule, 0, 0x1p-133F * 3).scale, 0x1p-7F);
  EXPECT_EQ(choose_scale(rule, 0, 0x1p-133F * 15).scale, 0x1p-133F * 2);
}

TEST(ScaleRule, ExactKeepsTheLeastRangesAndRoundsSubnormalScalesUp) {
  const ScaleRule rule = rule_of(4, true, Numerics::kExact);
  EXPECT_EQ(choose_scale(rule, 0, 0x1p-133F).scale, 0x1p-133F);
  // 10 / 7.5 = 1.33 steps: one step would clip a quarter of the range.
  EXPECT_EQ(choose_scale(rule, 0, 0x1p-133F * 10).scale, 0x1p-133F * 2);
  const ScaleAndZero asymmetric = choose_scale(
      rule_of(4, false, Numerics::kExact), -0x1p-133F, 0x1p-133F * 18);
  EXPECT_EQ(asymmetric.scale, 0x1p-133F * 2);
}

TEST(ScaleRule, EveryCodeOfTheGreatestRangesDecodesToAFiniteWeight) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const float greatest = dtype == DType::kF16 ? 65504.0F
                           : dtype == DType::kF32
                               ? std::numeric_limits<float>::max()
                               : 0x1.FEp127F;
    for (const int bits : {0, 2, 3, 4, 8}) {
      for (const bool symmetric : {true, false}) {
        for (const Numerics numerics : kBoth) {
          if (bits == 0 && !symmetric) {
            continue;
          }
          for (const auto& [low, high] : {std::pair{-greatest, greatest},
                                          std::pair{-greatest, 0.0F},
                                          std::pair{0.0F, greatest},
                                          std::pair{-greatest, greatest / 2}}) {
            const ScaleRule rule =
                rule_of(bits, symmetric, numerics, dtype, dtype);
            const ScaleAndZero chosen = choose_scale(rule, low, high);
            const auto zero = static_cast<float>(chosen.zero);
            EXPECT_TRUE(std::isfinite(chosen.scale) && chosen.scale > 0);
            EXPECT_LE(std::fabs((rule.low - zero) * chosen.scale), greatest);
            EXPECT_LE(std::fabs((rule.high - zero) * chosen.scale), greatest);
            // And the range is still covered but for a code's width or two.
            EXPECT_GE((rule.high - zero + 2) * chosen.scale, high / 1.01F);
          }
        }
      }
    }
  }
}

TEST(ScaleRule, ScalesBeyondTheirTypeStopAtItsGreatest) {
  for (const Numerics numerics : kBoth) {
    const ScaleAndZero chosen = choose_scale(
        rule_of(4, true, numerics, DType::kF32, DType::kF16), -1e30F, 1e30F);
    EXPECT_EQ(chosen.scale, 65504.0F);
  }
}

TEST(ScaleRule, ManyAtOnceAreTheSameAsOneByOne) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> exponent(-149, 127.9F);
  std::uniform_real_distribution<float> plain(-0.1F, 0.1F);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    std::vector<float> low(4000);
    std::vector<float> high(low.size());
    for (std::size_t i = 0; i < low.size(); ++i) {
      // Half ordinary in whole strips, half of any size.
      const bool ordinary = i / 40 % 2 == 0;
      const auto draw = [&] {
        const float value = ordinary ? plain(random)
                                     : std::exp2(exponent(random)) *
                                           (random() % 2 == 0 ? 1.0F : -1.0F);
        const float rounded = round_to(dtype, value);
        return std::isfinite(rounded) ? rounded : 1.0F;
      };
      low[i] = draw();
      high[i] = draw();
      if (low[i] > high[i]) {
        std::swap(low[i], high[i]);
      }
    }
    for (const Numerics numerics : kBoth) {
      for (const bool symmetric : {true, false}) {
        for (const int bits : {4, 8}) {
          for (const DType scales : {dtype, DType::kF32}) {
            const ScaleRule rule =
                rule_of(bits, symmetric, numerics, dtype, scales);
            for (std::size_t first = 0; first < low.size(); first += 40) {
              float many[40];
              std::int8_t zeros[40] = {};
              const bool fast = choose_scales(
                  rule, &low[first], &high[first], 40, many, zeros);
              ASSERT_EQ(fast, std::ranges::all_of(many, [](float scale) {
                          return scale >= kLeastFastScale &&
                                 scale <= kGreatestFastScale;
                        }));
              for (std::size_t i = 0; i < 40; ++i) {
                const ScaleAndZero one =
                    choose_scale(rule, low[first + i], high[first + i]);
                ASSERT_EQ(many[i], one.scale);
                ASSERT_EQ(zeros[i], one.zero);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace nibble::quant
