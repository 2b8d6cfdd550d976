#include "nibble/quant/schemes/integer/linear.h"

#include <limits>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/quant/schemes/common/linear_reference.h"

namespace nibble::quant {
namespace {

NumberSpec integer_spec(int bits,
                        Grain grain,
                        std::int64_t group = 0,
                        bool symmetric = true,
                        DType scale_dtype = DType::kBF16) {
  NumberSpec spec;
  spec.scheme = bits == 4 ? "int4" : "int8";
  spec.bits = bits;
  spec.grain = grain;
  spec.group = group;
  spec.symmetric = symmetric;
  spec.scale_dtype = scale_dtype;
  return spec;
}

NumberSpec input_spec(bool floating, Grain grain, std::int64_t group = 0) {
  NumberSpec spec;
  spec.scheme = floating ? "fp8" : "int8";
  spec.floating = floating;
  spec.grain = grain;
  spec.group = group;
  return spec;
}

std::unique_ptr<model::Linear> make(const LayerSpec& spec,
                                    const Quantized& codes,
                                    Isa isa,
                                    std::optional<Tensor> bias = {},
                                    std::optional<Tensor> input_scale = {}) {
  return make_integer_linear(spec,
                             codes.rows,
                             codes.columns,
                             source_of(codes),
                             std::move(bias),
                             std::move(input_scale),
                             backend::cpu_backend(),
                             isa);
}

std::vector<float> run(const model::Linear& layer,
                       const std::vector<float>& x,
                       std::int64_t rows,
                       std::int64_t columns) {
  const auto tokens = static_cast<std::int64_t>(x.size()) / columns;
  const Tensor in = Tensor::from_floats({tokens, columns}, x);
  Tensor out(DType::kF32, {tokens, rows});
  layer.forward(in.view(), out.view(), backend::cpu_backend().stream());
  const auto values = out.view().as<float>();
  return {values.begin(), values.end()};
}

std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

class IntegerLinear : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!cpu_has(GetParam())) {
      GTEST_SKIP() << "this processor lacks " << isa_name(GetParam());
    }
  }

  // Tokens on both sides of every kernel's limits.
  static constexpr std::int64_t kTokens[] = {1, 2, 3, 4, 5, 13, 33};
};

INSTANTIATE_TEST_SUITE_P(
    EachIsa,
    IntegerLinear,
    testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512),
    [](const auto& tested) { return std::string(isa_name(tested.param)); });

TEST_P(IntegerLinear, WeightOnlyIsTheExactProductForEverySpec) {
  for (const int bits : {4, 8}) {
    for (const bool symmetric : {true, false}) {
      for (const auto& [grain, group] :
           {std::pair{Grain::kGroup, std::int64_t{32}},
            std::pair{Grain::kGroup, std::int64_t{64}},
            std::pair{Grain::kGroup, std::int64_t{128}},
            std::pair{Grain::kGroup, std::int64_t{256}},
            std::pair{Grain::kChannel, std::int64_t{0}},
            std::pair{Grain::kTensor, std::int64_t{0}}}) {
        const LayerSpec spec{integer_spec(bits, grain, group, symmetric), {}};
        const Quantized codes = random_codes(spec.weight, 35, 512, 1);
        const auto layer = make(spec, codes, GetParam());
        for (const std::int64_t tokens : kTokens) {
          const auto x = random_activations(tokens, 512, 2);
          const ExactProduct exact =
              exact_product(doubles(x), exact_weights(codes), 35, 512);
          EXPECT_LT(worst_error(run(*layer, x, 35, 512), exact), 1e-4)
              << describe(spec) << ", " << tokens << " tokens";
        }
      }
    }
  }
}

TEST_P(IntegerLinear, AnyShapeWorks) {
  for (const std::int64_t rows : {1, 3, 17, 130}) {
    for (const std::int64_t columns : {1, 8, 32, 33, 100, 576, 2200}) {
      for (const Grain grain : {Grain::kChannel, Grain::kGroup}) {
        const LayerSpec spec{integer_spec(4, grain, 32, false), {}};
        const Quantized codes = random_codes(spec.weight, rows, columns, 3);
        const auto layer = make(spec, codes, GetParam());
        for (const std::int64_t tokens : {1, 5}) {
          const auto x = random_activations(tokens, columns, 4);
          const ExactProduct exact =
              exact_product(doubles(x), exact_weights(codes), rows, columns);
          EXPECT_LT(worst_error(run(*layer, x, rows, columns), exact), 1e-4)
              << rows << " x " << columns << ", " << tokens << " tokens";
        }
      }
    }
  }
}

TEST_P(IntegerLinear, OddGroupsAndScaleTypesWork) {
  for (const std::int64_t group : {8, 40, 96, 136, 192}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      const LayerSpec spec{integer_spec(4, Grain::kGroup, group, true, dtype),
                           {}};
      const Quantized codes = random_codes(spec.weight, 20, 2 * group, 5);
      const auto layer = make(spec, codes, GetParam());
      for (const std::int64_t tokens : {1, 6}) {
        const auto x = random_activations(tokens, 2 * group, 6);
        const ExactProduct exact =
            exact_product(doubles(x), exact_weights(codes), 20, 2 * group);
        EXPECT_LT(worst_error(run(*layer, x, 20, 2 * group), exact), 1e-4)
            << "group " << group << ", " << dtype_name(dtype);
      }
    }
  }
}

TEST_P(IntegerLinear, DynamicAndStaticInt8InputsAreTheDeclaredCodes) {
  for (const int bits : {4, 8}) {
    for (const Grain grain : {Grain::kToken, Grain::kTensor}) {
      const LayerSpec spec{integer_spec(bits, Grain::kGroup, 64),
                           input_spec(false, grain)};
      const Quantized codes = random_codes(spec.weight, 40, 192, 7);
      // Small enough that outliers saturate.
      constexpr float kScale = 0.03F;
      std::optional<Tensor> scale;
      if (grain == Grain::kTensor) {
        scale = Tensor::from_floats({1}, {kScale});
      }
      const auto layer = make(spec, codes, GetParam(), {}, std::move(scale));
      for (const std::int64_t tokens : kTokens) {
        auto x = random_activations(tokens, 192, 8);
        std::fill(x.begin(), x.begin() + 192, tokens == 3 ? 0.0F : 0.5F);
        const ExactProduct exact =
            exact_product(reference_inputs(*spec.input, kScale, x, 192),
                          exact_weights(codes),
                          40,
                          192);
        // Only float32 rounding of sums is left.
        EXPECT_LT(worst_error(run(*layer, x, 40, 192), exact), 2e-6)
            << describe(spec) << ", " << tokens << " tokens";
      }
    }
  }
}

TEST_P(IntegerLinear, Fp8InputsAreOnTheFp8Grid) {
  for (const auto& [grain, group] :
       {std::pair{Grain::kToken, std::int64_t{0}},
        std::pair{Grain::kTensor, std::int64_t{0}},
        std::pair{Grain::kGroup, std::int64_t{128}}}) {
    const LayerSpec spec{integer_spec(4, Grain::kGroup, 128),
                         input_spec(true, grain, group)};
    const Quantized codes = random_codes(spec.weight, 33, 256, 9);
    constexpr float kScale = 0.01F;
    std::optional<Tensor> scale;
    if (grain == Grain::kTensor) {
      scale = Tensor::from_floats({1}, {kScale});
    }
    const auto layer = make(spec, codes, GetParam(), {}, std::move(scale));
    for (const std::int64_t tokens : {1, 7}) {
      const auto x = random_activations(tokens, 256, 10);
      const ExactProduct exact =
          exact_product(reference_inputs(*spec.input, kScale, x, 256),
                        exact_weights(codes),
                        33,
                        256);
      EXPECT_LT(worst_error(run(*layer, x, 33, 256), exact), 1e-4)
          << describe(spec);
    }
  }
}

TEST_P(IntegerLinear, ExtremeCodesZeroPointsAndInputsDoNotOverflow) {
  for (const int bits : {4, 8}) {
    const LayerSpec spec{integer_spec(bits, Grain::kChannel, 0, false), {}};
    Quantized codes = random_codes(spec.weight, 32, 256, 11);
    const int limit = 1 << (bits - 1);
    for (std::int8_t& code : codes.codes.view().as<std::int8_t>()) {
      code = static_cast<std::int8_t>(limit - 1);
    }
    auto zeros = codes.zeros->view().as<std::int8_t>();
    for (std::size_t row = 0; row < zeros.size(); ++row) {
      zeros[row] = static_cast<std::int8_t>(row % 2 == 0 ? -limit : limit - 1);
    }
    const auto layer = make(spec, codes, GetParam());
    for (const std::int64_t tokens : {1, 5}) {
      const std::vector<float> x(static_cast<std::size_t>(tokens * 256), 3e4F);
      const ExactProduct exact =
          exact_product(doubles(x), exact_weights(codes), 32, 256);
      EXPECT_LT(worst_error(run(*layer, x, 32, 256), exact), 1e-4);
    }
  }
}

TEST_P(IntegerLinear, ZeroAndSubnormalScalesGiveFiniteResults) {
  const LayerSpec spec{integer_spec(4, Grain::kGroup, 32), {}};
  Quantized codes = random_codes(spec.weight, 16, 64, 12);
  auto scales = codes.scales.view().raw<std::uint16_t>();
  std::ranges::fill(scales, std::uint16_t{0x0001});  // 2^-133
  scales[0] = 0;
  const auto layer = make(spec, codes, GetParam());
  for (const std::int64_t tokens : {1, 5}) {
    const auto x = random_activations(tokens, 64, 13);
    for (const float value : run(*layer, x, 16, 64)) {
      EXPECT_TRUE(std::isfinite(value));
      EXPECT_LT(std::fabs(value), 1e-30F);
    }
  }
}

TEST_P(IntegerLinear, ZeroInputsGiveTheBias) {
  const LayerSpec spec{integer_spec(8, Grain::kChannel), {}};
  const Quantized codes = random_codes(spec.weight, 18, 64, 14);
  std::vector<float> bias(18);
  for (std::size_t i = 0; i < bias.size(); ++i) {
    bias[i] = static_cast<float>(i) - 4;
  }
  const auto layer =
      make(spec, codes, GetParam(), Tensor::from_floats({18}, bias));
  for (const std::int64_t tokens : {1, 5}) {
    const auto y =
        run(*layer,
            std::vector<float>(static_cast<std::size_t>(tokens * 64)),
            18,
            64);
    for (std::size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(y[i], bias[i % 18]);
    }
  }
}

TEST_P(IntegerLinear, NanInputsStayVisible) {
  for (const std::optional<NumberSpec>& input :
       {std::optional<NumberSpec>(),
        std::optional<NumberSpec>(input_spec(false, Grain::kToken)),
        std::optional<NumberSpec>(input_spec(false, Grain::kTensor)),
        std::optional<NumberSpec>(input_spec(true, Grain::kTensor))}) {
    const LayerSpec spec{integer_spec(4, Grain::kGroup, 32), input};
    const Quantized codes = random_codes(spec.weight, 16, 64, 15);
    std::optional<Tensor> scale;
    if (input && input->grain == Grain::kTensor) {
      scale = Tensor::from_floats({1}, {0.1F});
    }
    const auto layer = make(spec, codes, GetParam(), {}, std::move(scale));
    for (const std::int64_t tokens : {1, 5}) {
      auto x = random_activations(tokens, 64, 16);
      x[40] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(run(*layer, x, 16, 64)[0])) << describe(spec);
    }
  }
}

TEST_P(IntegerLinear, ThreadsDoNotChangeResults) {
  const LayerSpec spec{integer_spec(4, Grain::kGroup, 64), {}};
  const Quantized codes = random_codes(spec.weight, 300, 128, 17);
  const auto layer = make(spec, codes, GetParam());
  for (const std::int64_t tokens : {1, 40}) {
    const auto x = random_activations(tokens, 128, 18);
    set_thread_count(1);
    const auto one = run(*layer, x, 300, 128);
    set_thread_count(4);
    const auto four = run(*layer, x, 300, 128);
    set_thread_count(0);
    EXPECT_EQ(one, four);
  }
}

TEST_P(IntegerLinear, ATokensResultDoesNotDependOnItsCompany) {
  const LayerSpec spec{integer_spec(4, Grain::kGroup, 128, false), {}};
  const Quantized codes = random_codes(spec.weight, 48, 2304, 19);
  const auto layer = make(spec, codes, GetParam());
  const auto x = random_activations(600, 2304, 20);
  const auto together = run(*layer, x, 48, 2304);
  for (const std::int64_t tokens : {1, 3, 5, 14}) {
    const auto alone =
        run(*layer, {x.end() - tokens * 2304, x.end()}, 48, 2304);
    EXPECT_EQ(alone,
              std::vector<float>(together.end() - tokens * 48, together.end()));
  }
}

TEST_P(IntegerLinear, MemoryIsThatOfCodesAndScales) {
  const LayerSpec int4{integer_spec(4, Grain::kGroup, 32, false), {}};
  const Quantized codes4 = random_codes(int4.weight, 256, 512, 21);
  // 4 bits a weight, 16 + 8 bits a group of 32.
  EXPECT_EQ(make(int4, codes4, GetParam())->resident_bytes(),
            256 * 512 / 2 + 256 * 16 * 3);
  const LayerSpec int8{integer_spec(8, Grain::kChannel), {}};
  const Quantized codes8 = random_codes(int8.weight, 256, 512, 22);
  EXPECT_EQ(make(int8, codes8, GetParam())->resident_bytes(),
            256 * 512 + 256 * 2);
}

TEST(IntegerLinearIsa, AllSetsOfInstructionsAgreeToRounding) {
  const LayerSpec spec{integer_spec(4, Grain::kGroup, 128, false), {}};
  const Quantized codes = random_codes(spec.weight, 64, 1024, 23);
  const auto portable = make(spec, codes, Isa::kPortable);
  for (const std::int64_t tokens : {1, 30}) {
    const auto x = random_activations(tokens, 1024, 24);
    const auto expected = run(*portable, x, 64, 1024);
    const ExactProduct exact =
        exact_product(doubles(x), exact_weights(codes), 64, 1024);
    for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
      if (!cpu_has(isa)) {
        continue;
      }
      const auto found = run(*make(spec, codes, isa), x, 64, 1024);
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], expected[i], 1e-6 * exact.sizes[i])
            << isa_name(isa);
      }
    }
  }
}

// ---- Refusals --------------------------------------------------------------

void expect_refused(ErrorCode code,
                    const std::string& text,
                    const std::function<void()>& step) {
  try {
    step();
    ADD_FAILURE() << "not refused: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
        << error.what();
  }
}

void expect_spec_refused(const LayerSpec& spec, const std::string& text) {
  expect_refused(ErrorCode::kUnsupported, text, [&] {
    const Quantized codes =
        random_codes(integer_spec(4, Grain::kChannel), 16, 64, 25);
    make(spec, codes, Isa::kPortable);
  });
}

TEST(IntegerLinearRefuses, SpecsWithoutAKernel) {
  NumberSpec three_bits = integer_spec(4, Grain::kChannel);
  three_bits.bits = 3;
  expect_spec_refused({three_bits, {}}, "expected int4 or int8");
  expect_spec_refused({integer_spec(4, Grain::kGroup, 0), {}},
                      "expected int4 or int8");
  expect_spec_refused({integer_spec(4, Grain::kGroup, 20), {}},
                      "found groups of 20 columns");
  NumberSpec asymmetric = input_spec(false, Grain::kToken);
  asymmetric.symmetric = false;
  expect_spec_refused({integer_spec(8, Grain::kChannel), asymmetric},
                      "asymmetric, expected symmetric");
  expect_spec_refused(
      {integer_spec(8, Grain::kChannel), input_spec(false, Grain::kGroup, 64)},
      "inputs of integer weights");
}

TEST(IntegerLinearRefuses, CodesThatContradictTheSpec) {
  const LayerSpec spec{integer_spec(4, Grain::kGroup, 32, false), {}};
  const auto damaged = [&](const std::function<void(Quantized&)>& damage) {
    Quantized codes = random_codes(spec.weight, 16, 64, 26);
    damage(codes);
    // The whole thing at once: a broken one cannot be cut into rows.
    static_cast<void>(make_integer_linear(
        spec,
        16,
        64,
        [&](std::int64_t, std::int64_t) {
          Quantized copy;
          std::swap(copy, codes);
          return copy;
        },
        {},
        {},
        backend::cpu_backend(),
        Isa::kPortable));
  };
  const auto refused = [&](const std::string& text,
                           const std::function<void(Quantized&)>& damage) {
    expect_refused(ErrorCode::kCorruptData, text, [&] { damaged(damage); });
  };
  refused("codes: found 8, expected -8 to 7", [](Quantized& codes) {
    codes.codes.view().as<std::int8_t>()[5] = 8;
  });
  refused("zero points: found -9", [](Quantized& codes) {
    codes.zeros->view().as<std::int8_t>()[3] = -9;
  });
  refused("zero points: found none",
          [](Quantized& codes) { codes.zeros.reset(); });
  refused("scales: found shape (16, 1)", [](Quantized& codes) {
    codes.scales = Tensor::zeros(DType::kBF16, {16, 1});
  });
  refused("scales: found F32, expected BF16", [](Quantized& codes) {
    codes.scales = Tensor::zeros(DType::kF32, {16, 2});
  });
  refused("scales of rows from 0: found inf", [](Quantized& codes) {
    codes.scales.view().raw<std::uint16_t>()[7] = 0x7F80;
  });
  refused("codes: found 15 x 64", [](Quantized& codes) { codes.rows = 15; });
}

TEST(IntegerLinearRefuses, GroupsOfColumnsThatAreNotNeighbours) {
  const LayerSpec spec{integer_spec(4, Grain::kGroup, 32), {}};
  expect_refused(ErrorCode::kUnsupported, "(g_idx)", [&] {
    static_cast<void>(make_integer_linear(
        spec,
        16,
        64,
        [&](std::int64_t, std::int64_t) {
          Quantized codes = random_codes(spec.weight, 16, 64, 29);
          codes.order = Tensor::zeros(DType::kI32, {64});
          return codes;
        },
        {},
        {},
        backend::cpu_backend(),
        Isa::kPortable));
  });
}

TEST(IntegerLinearRefuses, BiasesAndInputScalesThatDoNotBelong) {
  const Quantized codes =
      random_codes(integer_spec(8, Grain::kChannel), 16, 64, 27);
  const LayerSpec plain{codes.spec, {}};
  const LayerSpec fixed{codes.spec, input_spec(false, Grain::kTensor)};
  const auto refused = [&](const std::string& text,
                           const LayerSpec& spec,
                           std::optional<Tensor> bias,
                           std::optional<Tensor> input_scale) {
    expect_refused(ErrorCode::kCorruptData, text, [&] {
      make(
          spec, codes, Isa::kPortable, std::move(bias), std::move(input_scale));
    });
  };
  refused(
      "bias: found 15 elements", plain, Tensor::zeros(DType::kF32, {15}), {});
  refused("input_scale: found one, expected none",
          plain,
          {},
          Tensor::from_floats({1}, {0.1F}));
  refused("input_scale: found none, expected one", fixed, {}, {});
  refused("input_scale: found 2 elements",
          fixed,
          {},
          Tensor::from_floats({2}, {0.1F, 0.1F}));
  refused("input_scale: found 0, expected a finite number above 0",
          fixed,
          {},
          Tensor::from_floats({1}, {0.0F}));
}

TEST(IntegerLinearRefuses, ActivationsOfTheWrongShape) {
  const Quantized codes =
      random_codes(integer_spec(8, Grain::kChannel), 16, 64, 28);
  const auto layer = make({codes.spec, {}}, codes, Isa::kPortable);
  expect_refused(ErrorCode::kInvalidArgument, "found x (1, 63)", [&] {
    run(*layer, std::vector<float>(63), 16, 63);
  });
}

}  // namespace
}  // namespace nibble::quant
