#include "nibble/quant/pipeline/inspect.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;

class Inspect : public testing::Test {
 protected:
  [[nodiscard]] static const InspectedLayer& layer(const InspectReport& report,
                                                   const std::string& name) {
    const auto found = std::find_if(
        report.layers.begin(), report.layers.end(), [&](const auto& one) {
          return one.name == name;
        });
    NIBBLE_CHECK(found != report.layers.end(), kNotFound, "no layer {}", name);
    return *found;
  }

  TemporaryDirectory temporary_;
  const fs::path source_ = temporary_.path() / "in";
  const fs::path output_ = temporary_.path() / "out";
};

TEST_F(Inspect, CountsADenseDirectory) {
  write_tiny(source_);
  const InspectReport report = inspect(source_);
  // Embedding and head 2 x 96 x 64, two layers of attention 64 x (64 + 32 + 32
  // + 64), MLP 3 x 64 x 128 and two norms, one last norm.
  const std::int64_t parameters =
      2 * 96 * 64 + 2 * (64 * 192 + 3 * 64 * 128 + 2 * 64) + 64;
  EXPECT_EQ(report.parameters, parameters);
  EXPECT_EQ(report.active_parameters, parameters);
  EXPECT_EQ(report.family, "llama");
  EXPECT_EQ(report.architecture, "LlamaForCausalLM");
  EXPECT_EQ(report.format, "dense");
  EXPECT_EQ(report.bytes, static_cast<std::uint64_t>(2 * parameters));
  EXPECT_DOUBLE_EQ(report.bits_per_weight, 16);
  const InspectedLayer& up = layer(report, "model.layers.1.mlp.up_proj");
  EXPECT_EQ(up.shape, (Shape{128, 64}));
  EXPECT_EQ(up.role, "mlp");
  EXPECT_EQ(up.dtype, "BF16");
  EXPECT_EQ(up.scheme, "");
}

TEST_F(Inspect, CountsTheSameParametersQuantized) {
  write_tiny(source_, {.family = "llama4"});
  static_cast<void>(quantize_to(
      source_, one_rule(R"("scheme": "int4", "group": 32)"), output_));
  const InspectReport dense = inspect(source_);
  const InspectReport report = inspect(output_);
  EXPECT_EQ(report.parameters, dense.parameters);
  EXPECT_EQ(report.active_parameters, dense.active_parameters);
  // Of 3 experts of 3 x 64 x 160 one is active.
  EXPECT_EQ(dense.parameters - dense.active_parameters, 2 * 3 * 64 * 160);
  EXPECT_EQ(report.format, "compressed-tensors pack-quantized");
  EXPECT_LT(report.bits_per_weight, 10);
  const InspectedLayer& expert =
      layer(report, "model.layers.1.feed_forward.experts.2.down_proj");
  EXPECT_EQ(expert.scheme, "int4 group 32");
  EXPECT_EQ(expert.dtype, "I32");
  EXPECT_EQ(expert.shape, (Shape{64, 160}));
  // Codes 64 x 160 / 2, scales 64 x 5 x 2, shape 2 x 8.
  EXPECT_EQ(expert.bytes, 5120u + 640u + 16u);
  EXPECT_EQ(expert.role, "expert");
}

TEST_F(Inspect, ReadsASingleFile) {
  write_tiny(source_);
  const InspectReport report = inspect(source_ / "model.safetensors");
  EXPECT_EQ(report.family, "");
  EXPECT_EQ(report.format, "dense");
  EXPECT_EQ(report.active_parameters, 0);
  EXPECT_EQ(report.layers.size(), 21u);
}

TEST_F(Inspect, PrintsLayersInTheirNaturalOrder) {
  write_tiny(source_);
  const nlohmann::json document = to_json(inspect(source_));
  for (const char* key : {"family",
                          "parameters",
                          "active_parameters",
                          "bytes",
                          "bits_per_weight",
                          "format",
                          "layers"}) {
    EXPECT_TRUE(document.contains(key)) << key;
  }
  EXPECT_EQ(document.at("layers").front().at("name"), "lm_head");
  EXPECT_EQ(document.at("layers").back().at("name"), "model.norm");
}

TEST_F(Inspect, ThrowsForAMissingPath) {
  expect_error(ErrorCode::kNotFound, "nothing", [&] {
    static_cast<void>(inspect(temporary_.path() / "nothing"));
  });
}

}  // namespace
}  // namespace nibble::quant
