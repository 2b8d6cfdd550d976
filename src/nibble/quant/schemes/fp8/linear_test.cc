#include "nibble/quant/schemes/fp8/linear.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/quant/schemes/common/linear_reference.h"

namespace nibble::quant {
namespace {

NumberSpec fp8_spec(Grain grain,
                    std::int64_t group = 0,
                    DType scale_dtype = DType::kBF16) {
  NumberSpec spec;
  spec.scheme = "fp8";
  spec.floating = true;
  spec.grain = grain;
  spec.group = group;
  spec.scale_dtype = scale_dtype;
  if (grain == Grain::kBlock) {
    spec.group = 0;
    spec.block_rows = spec.block_columns = group;
  }
  return spec;
}

std::unique_ptr<model::Linear> make(const LayerSpec& spec,
                                    const Quantized& codes,
                                    Isa isa,
                                    std::optional<Tensor> bias = {},
                                    std::optional<Tensor> input_scale = {}) {
  return make_fp8_linear(spec,
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

// float32 sums of up to a few thousand terms.
constexpr double kRounding = 2e-6;

class Fp8Linear : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!cpu_has(GetParam())) {
      GTEST_SKIP() << "this processor lacks " << isa_name(GetParam());
    }
  }

  // Tokens on both sides of every kernel's limits.
  static constexpr std::int64_t kTokens[] = {1, 2, 3, 4, 5, 7, 13, 33};
};

INSTANTIATE_TEST_SUITE_P(
    EachIsa,
    Fp8Linear,
    testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512),
    [](const auto& tested) { return std::string(isa_name(tested.param)); });

TEST_P(Fp8Linear, WeightOnlyIsTheExactProductForEverySpec) {
  for (const NumberSpec& weight : {fp8_spec(Grain::kTensor),
                                   fp8_spec(Grain::kChannel),
                                   fp8_spec(Grain::kChannel, 0, DType::kF32),
                                   fp8_spec(Grain::kChannel, 0, DType::kF16),
                                   fp8_spec(Grain::kGroup, 128),
                                   fp8_spec(Grain::kBlock, 128)}) {
    const LayerSpec spec{weight, {}};
    const Quantized codes = random_codes(weight, 150, 320, 1);
    const auto layer = make(spec, codes, GetParam());
    for (const std::int64_t tokens : kTokens) {
      const auto x = random_activations(tokens, 320, 2);
      const ExactProduct exact =
          exact_product(doubles(x), exact_weights(codes), 150, 320);
      EXPECT_LT(worst_error(run(*layer, x, 150, 320), exact), kRounding)
          << describe(spec) << ", " << tokens << " tokens";
    }
  }
}

TEST_P(Fp8Linear, AnyShapeWorks) {
  for (const std::int64_t rows : {1, 3, 17, 130}) {
    for (const std::int64_t columns : {1, 7, 32, 33, 129, 576, 2200}) {
      for (const Grain grain : {Grain::kChannel, Grain::kBlock}) {
        const LayerSpec spec{fp8_spec(grain, 128), {}};
        const Quantized codes = random_codes(spec.weight, rows, columns, 3);
        const auto layer = make(spec, codes, GetParam());
        for (const std::int64_t tokens : {1, 5}) {
          const auto x = random_activations(tokens, columns, 4);
          const ExactProduct exact =
              exact_product(doubles(x), exact_weights(codes), rows, columns);
          EXPECT_LT(worst_error(run(*layer, x, rows, columns), exact),
                    kRounding)
              << rows << " x " << columns << ", " << tokens << " tokens";
        }
      }
    }
  }
}

TEST_P(Fp8Linear, BlocksOfAnyHeightWork) {
  NumberSpec weight = fp8_spec(Grain::kBlock, 24);
  weight.block_columns = 40;
  const Quantized codes = random_codes(weight, 200, 100, 5);
  const auto layer = make({weight, {}}, codes, GetParam());
  for (const std::int64_t tokens : {1, 5}) {
    const auto x = random_activations(tokens, 100, 6);
    const ExactProduct exact =
        exact_product(doubles(x), exact_weights(codes), 200, 100);
    EXPECT_LT(worst_error(run(*layer, x, 200, 100), exact), kRounding);
  }
}

TEST_P(Fp8Linear, EveryCodeHasItsValue) {
  // One column and an activation of 1: the result is the decoded weight.
  const LayerSpec spec{fp8_spec(Grain::kChannel, 0, DType::kF32), {}};
  Quantized codes = random_codes(spec.weight, 256, 1, 7);
  auto bytes = codes.codes.view().raw<std::uint8_t>();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    bytes[i] = (code & 0x7Fu) == 0x7Fu ? std::uint8_t{0} : code;
  }
  std::ranges::fill(codes.scales.view().as<float>(), 1.0F);
  const auto layer = make(spec, codes, GetParam());
  for (const std::int64_t tokens : {1, 5}) {
    const auto y = run(*layer,
                       std::vector<float>(static_cast<std::size_t>(tokens), 1),
                       256,
                       1);
    for (std::size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(y[i], f8e4m3_to_float(bytes[i % 256])) << i;
    }
  }
}

TEST_P(Fp8Linear, SmallAndLargeNumbersKeepTheirPrecision) {
  const LayerSpec spec{fp8_spec(Grain::kChannel, 0, DType::kF32), {}};
  Quantized codes = random_codes(spec.weight, 16, 64, 22);
  for (const float weight_size : {1e-20F, 1e10F}) {
    std::ranges::fill(codes.scales.view().as<float>(), weight_size);
    const auto layer = make(spec, codes, GetParam());
    for (const float input_size : {1e-12F, 1e12F}) {
      for (const std::int64_t tokens : {1, 5}) {
        auto x = random_activations(tokens, 64, 23);
        for (float& value : x) {
          value *= input_size;
        }
        const ExactProduct exact =
            exact_product(doubles(x), exact_weights(codes), 16, 64);
        EXPECT_LT(worst_error(run(*layer, x, 16, 64), exact), kRounding)
            << weight_size << " " << input_size;
      }
    }
  }
}

TEST_P(Fp8Linear, InputsAreOnTheFp8Grid) {
  struct Case {
    NumberSpec weight;
    NumberSpec input;
  };

  for (const Case& c :
       {Case{fp8_spec(Grain::kChannel), fp8_spec(Grain::kToken)},
        Case{fp8_spec(Grain::kTensor), fp8_spec(Grain::kTensor)},
        Case{fp8_spec(Grain::kBlock, 128), fp8_spec(Grain::kGroup, 128)}}) {
    const LayerSpec spec{c.weight, c.input};
    const Quantized codes = random_codes(c.weight, 40, 300, 8);
    // Small enough that outliers saturate.
    constexpr float kScale = 0.005F;
    std::optional<Tensor> scale;
    if (c.input.grain == Grain::kTensor) {
      scale = Tensor::from_floats({1}, {kScale});
    }
    const auto layer = make(spec, codes, GetParam(), {}, std::move(scale));
    for (const std::int64_t tokens : kTokens) {
      auto x = random_activations(tokens, 300, 9);
      std::fill(x.begin(), x.begin() + 300, tokens == 3 ? 0.0F : 0.5F);
      const ExactProduct exact =
          exact_product(reference_inputs(c.input, kScale, x, 300),
                        exact_weights(codes),
                        40,
                        300);
      EXPECT_LT(worst_error(run(*layer, x, 40, 300), exact), kRounding)
          << describe(spec) << ", " << tokens << " tokens";
    }
  }
}

TEST_P(Fp8Linear, ZeroInputsGiveTheBias) {
  const LayerSpec spec{fp8_spec(Grain::kChannel), fp8_spec(Grain::kToken)};
  const Quantized codes = random_codes(spec.weight, 18, 64, 10);
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

TEST_P(Fp8Linear, NanInputsStayVisible) {
  for (const std::optional<NumberSpec>& input :
       {std::optional<NumberSpec>(),
        std::optional<NumberSpec>(fp8_spec(Grain::kToken))}) {
    const LayerSpec spec{fp8_spec(Grain::kChannel), input};
    const Quantized codes = random_codes(spec.weight, 16, 64, 11);
    const auto layer = make(spec, codes, GetParam());
    auto x = random_activations(5, 64, 12);
    x[40] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(run(*layer, x, 16, 64)[0]));
  }
}

TEST_P(Fp8Linear, ThreadsDoNotChangeResults) {
  const LayerSpec spec{fp8_spec(Grain::kChannel), {}};
  const Quantized codes = random_codes(spec.weight, 300, 128, 13);
  const auto layer = make(spec, codes, GetParam());
  for (const std::int64_t tokens : {1, 40}) {
    const auto x = random_activations(tokens, 128, 14);
    set_thread_count(1);
    const auto one = run(*layer, x, 300, 128);
    set_thread_count(4);
    const auto four = run(*layer, x, 300, 128);
    set_thread_count(0);
    EXPECT_EQ(one, four);
  }
}

TEST_P(Fp8Linear, ATokensResultHardlyDependsOnItsCompany) {
  const LayerSpec spec{fp8_spec(Grain::kChannel), {}};
  const Quantized codes = random_codes(spec.weight, 48, 2304, 15);
  const auto layer = make(spec, codes, GetParam());
  const auto x = random_activations(600, 2304, 16);
  const auto together = run(*layer, x, 48, 2304);
  const std::vector<float> last(x.end() - 2304, x.end());
  const ExactProduct exact =
      exact_product(doubles(last), exact_weights(codes), 48, 2304);
  const auto alone = run(*layer, last, 48, 2304);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_NEAR(alone[i],
                together[together.size() - 48 + i],
                kRounding * exact.sizes[i]);
  }
}

TEST_P(Fp8Linear, MemoryIsThatOfCodesAndScales) {
  const LayerSpec spec{fp8_spec(Grain::kChannel), {}};
  const Quantized codes = random_codes(spec.weight, 256, 512, 17);
  EXPECT_EQ(make(spec, codes, GetParam())->resident_bytes(),
            256 * 512 + 256 * 2);
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

TEST(Fp8LinearRefuses, SpecsWithoutAKernel) {
  const Quantized codes = random_codes(fp8_spec(Grain::kChannel), 16, 64, 18);
  const auto refused = [&](const LayerSpec& spec, const std::string& text) {
    expect_refused(ErrorCode::kUnsupported, text, [&] {
      make(spec, codes, Isa::kPortable);
    });
  };
  NumberSpec integer = fp8_spec(Grain::kChannel);
  integer.floating = false;
  refused({integer, {}}, "expected fp8");
  refused({fp8_spec(Grain::kBlock, 0), {}}, "expected fp8");
  refused({fp8_spec(Grain::kGroup, 30), {}}, "found a scale for 30 columns");
  refused({fp8_spec(Grain::kChannel), integer}, "inputs of fp8 weights");
  refused({fp8_spec(Grain::kChannel, 0, DType::kI32), {}},
          "weight scales: found I32");
}

TEST(Fp8LinearRefuses, NanCodesAndScales) {
  const LayerSpec spec{fp8_spec(Grain::kChannel), {}};
  Quantized codes = random_codes(spec.weight, 16, 64, 19);
  codes.codes.view().raw<std::uint8_t>()[70] = 0xFF;
  expect_refused(ErrorCode::kCorruptData, "found NaN (0xFF)", [&] {
    make(spec, codes, Isa::kPortable);
  });
  codes = random_codes(spec.weight, 16, 64, 19);
  codes.scales.view().raw<std::uint16_t>()[3] = 0x7FC0;
  expect_refused(ErrorCode::kCorruptData, "scales of rows from 0", [&] {
    make(spec, codes, Isa::kPortable);
  });
}

TEST(Fp8LinearRefuses, InputScalesThatDoNotBelong) {
  const Quantized codes = random_codes(fp8_spec(Grain::kTensor), 16, 64, 20);
  const LayerSpec spec{codes.spec, fp8_spec(Grain::kTensor)};
  expect_refused(ErrorCode::kCorruptData,
                 "input_scale: found none, expected one",
                 [&] { make(spec, codes, Isa::kPortable); });
  expect_refused(ErrorCode::kCorruptData, "input_scale: found -1", [&] {
    make(spec, codes, Isa::kPortable, {}, Tensor::from_floats({1}, {-1}));
  });
}

TEST(Fp8LinearRefuses, ActivationsOfTheWrongShape) {
  const Quantized codes = random_codes(fp8_spec(Grain::kChannel), 16, 64, 21);
  const auto layer = make({codes.spec, {}}, codes, Isa::kPortable);
  expect_refused(ErrorCode::kInvalidArgument, "found x (1, 63)", [&] {
    run(*layer, std::vector<float>(63), 16, 63);
  });
}

}  // namespace
}  // namespace nibble::quant
