// All instruction sets give the same bytes as the portable reference.

#include <vector>

#include <gtest/gtest.h>

#include "nibble/quant/schemes/common/isa_checks_for_tests.h"
#include "nibble/quant/schemes/integer/codes.h"
#include "nibble/quant/schemes/integer/scheme.h"
#include "weight_patterns.h"

namespace nibble::quant {
namespace {

std::vector<NumberSpec> specs() {
  std::vector<NumberSpec> all;
  for (const int bits : {2, 3, 4, 5, 6, 7, 8}) {
    for (const bool symmetric : {true, false}) {
      for (const std::int64_t group : {0, 7, 32, 64, 128, -1}) {
        NumberSpec spec;
        spec.scheme = bits == 4 ? "int4" : "int8";
        spec.bits = bits;
        spec.symmetric = symmetric;
        spec.grain = group > 0    ? Grain::kGroup
                     : group == 0 ? Grain::kChannel
                                  : Grain::kTensor;
        spec.group = group > 0 ? group : 0;
        all.push_back(spec);
      }
    }
  }
  return all;
}

class IntegerIsa : public ::testing::TestWithParam<Isa> {};

TEST_P(IntegerIsa, GivesTheBytesOfThePortableReference) {
  if (!cpu_has(GetParam())) {
    GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
  }
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const WeightPattern& pattern : weight_patterns()) {
      for (NumberSpec spec : specs()) {
        spec.scale_dtype = dtype;
        const std::int64_t columns = spec.group == 7 ? 7 * 13 : 128 * 3;
        const Tensor weight = make_weight(pattern, dtype, 3, columns);
        for (const Numerics numerics :
             {Numerics::kExact, Numerics::kReference}) {
          EncodeOptions options;
          options.numerics = numerics;
          const Quantized expected =
              integer::encode(spec, weight.view(), options, Isa::kPortable);
          const Quantized found =
              integer::encode(spec, weight.view(), options, GetParam());
          const auto where = [&] {
            return fmt::format("{} {} {} bits, reference {}, ",
                               dtype_name(dtype),
                               pattern.name,
                               spec.bits,
                               numerics == Numerics::kReference) +
                   describe(LayerSpec{spec, {}});
          };
          ASSERT_TRUE(same_bytes(found.scales, expected.scales)) << where();
          ASSERT_TRUE(same_bytes(found.codes, expected.codes)) << where();
          ASSERT_EQ(found.zeros.has_value(), !spec.symmetric);
          ASSERT_TRUE(spec.symmetric ||
                      same_bytes(*found.zeros, *expected.zeros))
              << where();
        }
      }
    }
  }
}

TEST_P(IntegerIsa, DividesEveryPairOfBF16Significands) {
  if (!cpu_has(GetParam())) {
    GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
  }
  for (const Numerics numerics : {Numerics::kExact, Numerics::kReference}) {
    for (const DType scales : {DType::kBF16, DType::kF32}) {
      expect_pairs_divided(
          integer::code_functions(DType::kBF16, scales, numerics, GetParam()));
    }
  }
}

TEST_P(IntegerIsa, DividesFloatsNextToATieLikeADivision) {
  if (!cpu_has(GetParam())) {
    GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
  }
  expect_ties_divided(integer::code_functions(
      DType::kF32, DType::kF32, Numerics::kExact, GetParam()));
}

TEST_P(IntegerIsa, DecodesToTheValuesOfThePortableReference) {
  if (!cpu_has(GetParam())) {
    GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
  }
  expect_same_values(integer::value_function(Isa::kPortable),
                     integer::value_function(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All,
                         IntegerIsa,
                         ::testing::Values(Isa::kAvx2, Isa::kAvx512),
                         [](const auto& test) {
                           return std::string(isa_name(test.param));
                         });

}  // namespace
}  // namespace nibble::quant
