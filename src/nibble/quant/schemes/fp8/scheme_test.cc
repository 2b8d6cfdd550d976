#include "nibble/quant/schemes/fp8/scheme.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nibble/base/error.h"

namespace nibble::quant {
namespace {

using ::testing::HasSubstr;

NumberSpec weight_spec(Grain grain) {
  NumberSpec spec;
  spec.scheme = "fp8";
  spec.floating = true;
  spec.grain = grain;
  spec.block_rows = grain == Grain::kBlock ? 128 : 0;
  spec.block_columns = spec.block_rows;
  return spec;
}

Error refusal(const LayerSpec& spec,
              std::int64_t rows = 64,
              std::int64_t columns = 576) {
  try {
    fp8_scheme().check(spec, rows, columns);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    return error;
  }
  ADD_FAILURE() << "accepted " << describe(spec);
  return {ErrorCode::kInternal, "nothing refused"};
}

TEST(Fp8Scheme, AcceptsEveryGrainWithoutDynamicAndStaticInputs) {
  for (const Grain grain : {Grain::kTensor, Grain::kChannel, Grain::kBlock}) {
    const NumberSpec weight = weight_spec(grain);
    NumberSpec stored = weight_spec(Grain::kTensor);
    fp8_scheme().check({weight, {}}, 3, 256);
    fp8_scheme().check({weight, fp8_scheme().dynamic_input(weight)}, 3, 256);
    fp8_scheme().check({weight, stored}, 3, 256);
  }
}

TEST(Fp8Scheme, DynamicInputsFollowTheBlocks) {
  EXPECT_EQ(fp8_scheme().dynamic_input(weight_spec(Grain::kChannel)).grain,
            Grain::kToken);
  const NumberSpec input =
      fp8_scheme().dynamic_input(weight_spec(Grain::kBlock));
  EXPECT_EQ(input.grain, Grain::kGroup);
  EXPECT_EQ(input.group, 128);
  EXPECT_TRUE(input.floating);
}

TEST(Fp8Scheme, RefusesColumnsThatBlocksDoNotDivide) {
  const Error error = refusal({weight_spec(Grain::kBlock), {}});
  EXPECT_THAT(error.what(), HasSubstr("found 576 columns"));
  EXPECT_THAT(error.what(), HasSubstr("128"));
  EXPECT_EQ(error.hint(), "use group \"channel\"");
}

TEST(Fp8Scheme, RefusesWhatItCannotHold) {
  const auto changed = [](const std::function<void(NumberSpec&)>& change) {
    LayerSpec layer{weight_spec(Grain::kChannel), {}};
    change(layer.weight);
    return std::string(refusal(layer).what());
  };
  EXPECT_THAT(changed([](NumberSpec& spec) { spec.bits = 4; }),
              HasSubstr("found 4 bits of type float"));
  EXPECT_THAT(changed([](NumberSpec& spec) { spec.floating = false; }),
              HasSubstr("found 8 bits of type int"));
  EXPECT_THAT(changed([](NumberSpec& spec) { spec.symmetric = false; }),
              HasSubstr("asymmetric"));
  EXPECT_THAT(changed([](NumberSpec& spec) { spec.grain = Grain::kGroup; }),
              HasSubstr("found scales per group"));
  EXPECT_THAT(changed([](NumberSpec& spec) { spec.grain = Grain::kBlock; }),
              HasSubstr("found blocks of 0 x 0"));
  EXPECT_THAT(
      changed([](NumberSpec& spec) { spec.scale_dtype = DType::kF8E8M0; }),
      HasSubstr("found scales of F8_E8M0"));
}

TEST(Fp8Scheme, RefusesInputsThatDoNotGoWithTheWeight) {
  NumberSpec token = weight_spec(Grain::kToken);
  EXPECT_THAT(refusal({weight_spec(Grain::kBlock), token}, 4, 256).what(),
              HasSubstr("per token and 128 columns"));
  NumberSpec group = weight_spec(Grain::kGroup);
  group.group = 128;
  EXPECT_THAT(refusal({weight_spec(Grain::kChannel), group}, 4, 256).what(),
              HasSubstr("fp8 per token"));
  token.floating = false;
  token.scheme = "int8";
  const Error error = refusal({weight_spec(Grain::kChannel), token}, 4, 256);
  EXPECT_THAT(error.what(), HasSubstr("found int8 token"));
  EXPECT_FALSE(error.hint().empty());
}

TEST(Fp8Scheme, TableHasARowForBlocks) {
  const auto table = fp8_scheme().table();
  ASSERT_EQ(table.size(), 2U);
  EXPECT_EQ(table[0].scheme, "fp8");
  EXPECT_EQ(table[1].group, "[128, 128]");
  EXPECT_EQ(fp8_scheme().name(), "fp8");
}

}  // namespace
}  // namespace nibble::quant
