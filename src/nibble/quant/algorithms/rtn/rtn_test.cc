#include "nibble/quant/algorithms/rtn/rtn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nibble/base/error.h"

namespace nibble::quant {
namespace {

// Records what it is asked to encode; its codes are the rows' count.
class RecordingScheme final : public Scheme {
 public:
  [[nodiscard]] std::string_view name() const override { return "recording"; }

  [[nodiscard]] std::span<const std::string_view> recipe_names()
      const override {
    return {};
  }

  [[nodiscard]] std::vector<SchemeRow> table() const override { return {}; }

  [[nodiscard]] NumberSpec dynamic_input(
      const NumberSpec& weight) const override {
    return weight;
  }

  void check(const LayerSpec& /*spec*/,
             std::int64_t /*rows*/,
             std::int64_t /*columns*/) const override {}

  [[nodiscard]] Quantized encode(const NumberSpec& spec,
                                 ConstTensorView weight,
                                 const EncodeOptions& options) const override {
    if (weight.dim(0) == 0) {
      fail(ErrorCode::kInternal, "no rows");
    }
    Quantized result;
    result.spec = spec;
    result.rows = weight.dim(0);
    reference += options.numerics == Numerics::kReference ? 1 : 0;
    return result;
  }

  void decode_rows(const Quantized& /*quantized*/,
                   std::int64_t /*first*/,
                   std::int64_t /*count*/,
                   std::span<float> /*out*/) const override {}

  [[nodiscard]] std::unique_ptr<model::Linear> make_linear(
      const LayerSpec& /*spec*/,
      std::int64_t /*rows*/,
      std::int64_t /*columns*/,
      const RowSource& /*codes*/,
      std::optional<Tensor> /*bias*/,
      std::optional<Tensor> /*input_scale*/,
      backend::Backend& /*backend*/) const override {
    return nullptr;
  }

  mutable int reference = 0;
};

TEST(RoundToNearest, EncodesEveryMemberWithItsOwnSpecAndOptions) {
  const Tensor two = Tensor::zeros(DType::kF32, {2, 4});
  const Tensor three = Tensor::zeros(DType::kF32, {3, 4});
  LayerJob job;
  job.members.resize(2);
  job.members[0].module = "q_proj";
  job.members[0].weight = two.view();
  job.members[0].spec.bits = 4;
  job.members[1].module = "k_proj";
  job.members[1].weight = three.view();
  job.members[1].options.numerics = Numerics::kReference;
  const RecordingScheme scheme;
  const auto results = rtn_algorithm().run(job, scheme, nullptr);
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].rows, 2);
  EXPECT_EQ(results[0].spec.bits, 4);
  EXPECT_EQ(results[1].rows, 3);
  EXPECT_EQ(results[1].spec.bits, 8);
  EXPECT_EQ(scheme.reference, 1);
}

TEST(RoundToNearest, NamesTheModuleThatFails) {
  const Tensor empty = Tensor::zeros(DType::kF32, {0, 4});
  LayerJob job;
  job.members.resize(1);
  job.members[0].module = "model.layers.3.mlp.up_proj";
  job.members[0].weight = empty.view();
  const RecordingScheme scheme;
  try {
    static_cast<void>(rtn_algorithm().run(job, scheme, nullptr));
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                ::testing::StartsWith("model.layers.3.mlp.up_proj: "));
  }
}

TEST(RoundToNearest, NeedsNoCalibrationAndTakesTilesOfRows) {
  EXPECT_EQ(rtn_algorithm().name(), "rtn");
  EXPECT_EQ(rtn_algorithm().needs(), Needs::kNothing);
  EXPECT_TRUE(rtn_algorithm().row_separable());
}

}  // namespace
}  // namespace nibble::quant
