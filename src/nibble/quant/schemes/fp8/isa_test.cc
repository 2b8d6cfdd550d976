// All instruction sets give the same bytes as the portable reference.

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "nibble/quant/schemes/common/isa_checks_for_tests.h"
#include "nibble/quant/schemes/fp8/codes.h"
#include "nibble/quant/schemes/fp8/scheme.h"
#include "weight_patterns.h"

namespace nibble::quant {
namespace {

std::vector<NumberSpec> specs() {
  std::vector<NumberSpec> all;
  for (const Grain grain : {Grain::kChannel, Grain::kTensor, Grain::kBlock}) {
    NumberSpec spec;
    spec.scheme = "fp8";
    spec.floating = true;
    spec.grain = grain;
    spec.block_rows = grain == Grain::kBlock ? 2 : 0;
    spec.block_columns = grain == Grain::kBlock ? 128 : 0;
    all.push_back(spec);
  }
  return all;
}

class Fp8Isa : public ::testing::TestWithParam<Isa> {};

TEST_P(Fp8Isa, GivesTheBytesOfThePortableReference) {
  if (!cpu_has(GetParam())) {
    GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
  }
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const WeightPattern& pattern : weight_patterns()) {
      for (NumberSpec spec : specs()) {
        spec.scale_dtype = dtype;
        // The last block of 128 columns is cut.
        const Tensor weight = make_weight(pattern, dtype, 3, 331);
        for (const Numerics numerics :
             {Numerics::kExact, Numerics::kReference}) {
          EncodeOptions options;
          options.numerics = numerics;
          const Quantized expected =
              fp8::encode(spec, weight.view(), options, Isa::kPortable);
          const Quantized found =
              fp8::encode(spec, weight.view(), options, GetParam());
          const auto where = [&] {
            return fmt::format("{} {}, reference {}, ",
                               dtype_name(dtype),
                               pattern.name,
                               numerics == Numerics::kReference) +
                   describe(LayerSpec{spec, {}});
          };
          ASSERT_TRUE(same_bytes(found.scales, expected.scales)) << where();
          ASSERT_TRUE(same_bytes(found.codes, expected.codes)) << where();
        }
      }
    }
  }
}

TEST_P(Fp8Isa, DividesEveryPairOfBF16Significands) {
  if (!cpu_has(GetParam())) {
    GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
  }
  for (const Numerics numerics : {Numerics::kExact, Numerics::kReference}) {
    for (const DType scales : {DType::kBF16, DType::kF32}) {
      expect_pairs_divided(
          fp8::code_functions(DType::kBF16, scales, numerics, GetParam()));
    }
  }
}

// Scales of any significand and of all fast exponents, the neighbours of BF16
// scales among them, and blocks that mix binades, subnormal codes and zeros.
TEST_P(Fp8Isa, CodesBF16WeightsByAnyScale) {
  if (!cpu_has(GetParam())) {
    GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
  }
  std::mt19937 random(11);
  for (const Numerics numerics : {Numerics::kExact, Numerics::kReference}) {
    const CodeFunctions any =
        fp8::code_functions(DType::kBF16, DType::kF32, numerics, GetParam());
    const CodeFunctions rounded =
        fp8::code_functions(DType::kBF16, DType::kBF16, numerics, GetParam());
    for (int round = 0; round < 400; ++round) {
      const int exponent = round % 117 - 58;
      const auto mantissa = static_cast<std::uint16_t>(random() % 128);
      const float bf16 = std::ldexp(
          bf16_to_float(static_cast<std::uint16_t>(0x3F80 + mantissa)),
          exponent);
      std::vector<std::uint16_t> weights;
      for (int bits = (127 - 12) << 7; bits < (127 + 9) << 7; ++bits) {
        const float weight = std::ldexp(
            bf16_to_float(static_cast<std::uint16_t>(bits)), exponent);
        weights.push_back(float_to_bf16(random() % 2 == 0 ? weight : -weight));
      }
      weights.insert(weights.end(), {0, 0x8000, 1, 0x8001});
      if (round % 2 == 0) {
        std::shuffle(weights.begin(), weights.end(), random);
      }
      for (const float scale : {bf16,
                                std::nextafter(bf16, 0.0F),
                                std::nextafter(bf16, HUGE_VALF)}) {
        expect_same_codes(
            any, {.weight = weights.data(), .scales = &scale}, weights.size());
      }
      expect_same_codes(
          rounded, {.weight = weights.data(), .scales = &bf16}, weights.size());
      const float scale = std::ldexp(
          1.0F + static_cast<float>(random() % (1U << 23)) * 0x1p-23F,
          exponent);
      expect_same_codes(
          any, {.weight = weights.data(), .scales = &scale}, weights.size());
    }
  }
}

TEST_P(Fp8Isa, DividesFloatsNextToATieLikeADivision) {
  if (!cpu_has(GetParam())) {
    GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
  }
  expect_ties_divided(fp8::code_functions(
      DType::kF32, DType::kF32, Numerics::kExact, GetParam()));
}

TEST_P(Fp8Isa, DecodesToTheValuesOfThePortableReference) {
  if (!cpu_has(GetParam())) {
    GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
  }
  expect_same_values(fp8::value_function(Isa::kPortable),
                     fp8::value_function(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All,
                         Fp8Isa,
                         ::testing::Values(Isa::kAvx2, Isa::kAvx512),
                         [](const auto& test) {
                           return std::string(isa_name(test.param));
                         });

}  // namespace
}  // namespace nibble::quant
