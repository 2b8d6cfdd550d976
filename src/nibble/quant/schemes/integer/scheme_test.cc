#include "nibble/quant/schemes/integer/scheme.h"

#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nibble/base/error.h"

namespace nibble::quant {
namespace {

using ::testing::HasSubstr;

NumberSpec weight_spec(int bits, Grain grain, std::int64_t group = 0) {
  NumberSpec spec;
  spec.scheme = bits == 4 ? "int4" : "int8";
  spec.bits = bits;
  spec.grain = grain;
  spec.group = group;
  return spec;
}

NumberSpec input_spec(Grain grain) {
  NumberSpec spec;
  spec.scheme = "int8";
  spec.grain = grain;
  return spec;
}

Error refusal(const LayerSpec& spec,
              std::int64_t rows = 64,
              std::int64_t columns = 576) {
  try {
    integer_scheme().check(spec, rows, columns);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    return error;
  }
  ADD_FAILURE() << "accepted " << describe(spec);
  return {ErrorCode::kInternal, "nothing refused"};
}

TEST(IntegerScheme, AcceptsWhatItsTableOffers) {
  for (const int bits : {4, 8}) {
    for (const std::int64_t group : {32, 64, 128, 256}) {
      integer_scheme().check(
          {weight_spec(bits, Grain::kGroup, group), {}}, 3, 512);
    }
    for (const Grain grain : {Grain::kChannel, Grain::kTensor}) {
      NumberSpec spec = weight_spec(bits, grain);
      spec.symmetric = false;
      for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
        spec.scale_dtype = dtype;
        integer_scheme().check({spec, {}}, 1, 1);
        integer_scheme().check({spec, input_spec(Grain::kToken)}, 1, 1);
        integer_scheme().check({spec, input_spec(Grain::kTensor)}, 1, 1);
      }
    }
  }
}

TEST(IntegerScheme, NamesTheGroupThatWouldDivide) {
  const Error group128 = refusal({weight_spec(4, Grain::kGroup, 128), {}});
  EXPECT_THAT(group128.what(), HasSubstr("found 576 columns"));
  EXPECT_THAT(group128.what(), HasSubstr("group 128"));
  EXPECT_EQ(group128.hint(), "use group 64");
  EXPECT_EQ(refusal({weight_spec(4, Grain::kGroup, 64), {}}, 4, 96).hint(),
            "use group 32");
  EXPECT_THAT(refusal({weight_spec(4, Grain::kGroup, 32), {}}, 4, 40).hint(),
              HasSubstr("channel"));
}

TEST(IntegerScheme, RefusesWhatItCannotHold) {
  const auto changed = [](const std::function<void(NumberSpec&)>& change) {
    LayerSpec layer{weight_spec(4, Grain::kChannel), {}};
    change(layer.weight);
    return std::string(refusal(layer).what());
  };
  EXPECT_THAT(changed([](NumberSpec& spec) { spec.bits = 8; }),
              HasSubstr("expected 4 bits"));
  EXPECT_THAT(changed([](NumberSpec& spec) { spec.floating = true; }),
              HasSubstr("found 4 bits of type float"));
  EXPECT_THAT(changed([](NumberSpec& spec) { spec.scheme = "int5"; }),
              HasSubstr("int5"));
  EXPECT_THAT(changed([](NumberSpec& spec) { spec.grain = Grain::kBlock; }),
              HasSubstr("found scales per block"));
  EXPECT_THAT(changed([](NumberSpec& spec) { spec.grain = Grain::kToken; }),
              HasSubstr("found scales per token"));
  EXPECT_THAT(changed([](NumberSpec& spec) { spec.grain = Grain::kGroup; }),
              HasSubstr("found group 0"));
  EXPECT_THAT(changed([](NumberSpec& spec) { spec.scale_dtype = DType::kI8; }),
              HasSubstr("found scales of I8"));
  EXPECT_THAT(refusal({weight_spec(4, Grain::kChannel), {}}, 0, 4).what(),
              HasSubstr("0 x 4"));
}

TEST(IntegerScheme, RefusesInputsThatNoKernelComputes) {
  const auto with_input = [](const std::function<void(NumberSpec&)>& change) {
    NumberSpec input = input_spec(Grain::kToken);
    change(input);
    const Error error = refusal({weight_spec(8, Grain::kChannel), input});
    EXPECT_FALSE(error.hint().empty());
    return std::string(error.what());
  };
  EXPECT_THAT(with_input([](NumberSpec& spec) { spec.symmetric = false; }),
              HasSubstr("int8 token asymmetric"));
  EXPECT_THAT(with_input([](NumberSpec& spec) { spec.grain = Grain::kGroup; }),
              HasSubstr("found int8 group"));
  EXPECT_THAT(with_input([](NumberSpec& spec) {
                spec.scheme = "fp8";
                spec.floating = true;
              }),
              HasSubstr("found fp8"));
  EXPECT_THAT(with_input([](NumberSpec& spec) { spec.bits = 4; }),
              HasSubstr("expected symmetric int8"));
}

TEST(IntegerScheme, DynamicInputsAreInt8PerToken) {
  for (const int bits : {4, 8}) {
    const NumberSpec weight = weight_spec(bits, Grain::kGroup, 32);
    const NumberSpec input = integer_scheme().dynamic_input(weight);
    EXPECT_EQ(input.grain, Grain::kToken);
    EXPECT_EQ(input.bits, 8);
    integer_scheme().check({weight, input}, 4, 64);
  }
}

TEST(IntegerScheme, TableNamesEveryRecipeName) {
  std::vector<std::string> names;
  for (const SchemeRow& row : integer_scheme().table()) {
    names.push_back(row.scheme);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("int4", "int8"));
  EXPECT_EQ(integer_scheme().name(), "integer");
}

TEST(IntegerScheme, RefusesWeightsThatAreNoMatrixOrNotFinite) {
  const NumberSpec spec = weight_spec(4, Grain::kChannel);
  const auto expect_refusal = [&](const Tensor& weight,
                                  const EncodeOptions& options,
                                  const NumberSpec& of,
                                  ErrorCode code = ErrorCode::kInternal) {
    try {
      static_cast<void>(integer_scheme().encode(of, weight.view(), options));
      ADD_FAILURE() << "encoded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
    }
  };
  expect_refusal(Tensor::zeros(DType::kBF16, {4}), {}, spec);
  expect_refusal(
      Tensor::zeros(DType::kI8, {4, 4}), {}, spec, ErrorCode::kUnsupported);
  expect_refusal(Tensor::from_floats({1, 2}, {1, NAN}), {}, spec);
  expect_refusal(Tensor::from_floats({1, 2}, {1, INFINITY}), {}, spec);
  // A tensor's range that does not cover the tile.
  EncodeOptions narrow;
  narrow.tensor_min = -1.0F;
  narrow.tensor_max = 1.0F;
  for (const bool symmetric : {true, false}) {
    NumberSpec tensor = weight_spec(4, Grain::kTensor);
    tensor.symmetric = symmetric;
    expect_refusal(Tensor::from_floats({1, 2}, {1, -2}), narrow, tensor);
  }
  // Groups that do not divide: check() is the place that explains.
  expect_refusal(Tensor::from_floats({1, 3}, {1, 2, 3}),
                 {},
                 weight_spec(4, Grain::kGroup, 2));
}

TEST(IntegerScheme, RefusesToDecodePartsThatDoNotFit) {
  const Tensor weight = Tensor::from_floats({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto decode = [&](const std::function<void(Quantized&)>& damage) {
    NumberSpec spec = weight_spec(8, Grain::kGroup, 2);
    spec.symmetric = false;
    Quantized quantized = integer_scheme().encode(spec, weight.view(), {});
    damage(quantized);
    Tensor decoded(DType::kF32, {2, 4});
    integer_scheme().decode(quantized, decoded.view());
  };
  EXPECT_NO_THROW(decode([](Quantized&) {}));
  EXPECT_THROW(decode([](Quantized& q) { q.rows = 3; }), Error);
  EXPECT_THROW(decode([](Quantized& q) {
                 q.codes = Tensor::zeros(DType::kF8E4M3, {2, 4});
               }),
               Error);
  EXPECT_THROW(decode([](Quantized& q) {
                 q.scales = Tensor::zeros(DType::kBF16, {2, 1});
               }),
               Error);
  EXPECT_THROW(decode([](Quantized& q) {
                 q.zeros = Tensor::zeros(DType::kI8, {1, 2});
               }),
               Error);
  EXPECT_THROW(
      decode([](Quantized& q) { q.order = Tensor::zeros(DType::kI32, {3}); }),
      Error);
  EXPECT_THROW(decode([](Quantized& q) {
                 q.order = Tensor::zeros(DType::kI32, {4});
                 q.order->view().as<std::int32_t>()[2] = 2;
               }),
               Error);
}

}  // namespace
}  // namespace nibble::quant
