// Reference numerics write the tensors that the reference tool wrote.

#include <cstring>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/quant/pipeline/quantize.h"
#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "reference_data.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;
using container::CheckpointReader;
using container::TensorInfo;

struct GoldenCase {
  const char* name;    // folder of the reference data
  const char* source;  // bundled model
  const char* keys;    // of the rule that does the same
  // Activation scales come from calibration; weights do not depend on them.
  bool weights_only = false;
};

// NOLINTNEXTLINE(readability-identifier-naming): the name gtest looks for
void PrintTo(const GoldenCase& golden, std::ostream* out) {
  *out << golden.name;
}

class Golden : public testing::TestWithParam<GoldenCase> {};

bool is_input_scale(const std::string& name) {
  return name.ends_with(".input_scale");
}

TEST_P(Golden, ReferenceNumericsGiveTheSameTensors) {
  const GoldenCase& golden = GetParam();
  NIBBLE_REFERENCE_OR_SKIP(
      directory, std::string("golden/compressed-tensors/") + golden.name);
  const TemporaryDirectory temporary;
  QuantizeOptions options;
  options.output = temporary.path() / "out";
  options.numerics = Numerics::kReference;
  static_cast<void>(
      quantize_to(fs::path(NIBBLE_SOURCE_DIR) / "models" / golden.source,
                  one_rule(golden.keys),
                  options));
  const auto ours = container::open_safetensors(options.output);
  const auto theirs = container::open_safetensors(directory);
  std::size_t compared = 0;
  for (const TensorInfo& expected : theirs->tensors()) {
    if (golden.weights_only && is_input_scale(expected.name)) {
      continue;
    }
    const TensorInfo* found = ours->find(expected.name);
    ASSERT_NE(found, nullptr) << expected.name;
    EXPECT_EQ(dtype_name(found->dtype), dtype_name(expected.dtype));
    ASSERT_EQ(found->shape, expected.shape) << expected.name;
    const Tensor a = ours->load_copy(*found);
    const Tensor b = theirs->load_copy(expected);
    ASSERT_EQ(std::memcmp(a.view().data(), b.view().data(), a.view().bytes()),
              0)
        << expected.name;
    ++compared;
  }
  EXPECT_EQ(ours->tensors().size(), compared);
}

// The default numerics are there because they are better: on every layer.
TEST_P(Golden, ExactNumericsAreNowhereWorse) {
  const GoldenCase& golden = GetParam();
  const TemporaryDirectory temporary;
  std::map<Numerics, std::map<std::string, double>> errors;
  for (const Numerics numerics : {Numerics::kExact, Numerics::kReference}) {
    QuantizeOptions options;
    options.output = temporary.path() / "out";
    options.numerics = numerics;
    options.overwrite = true;
    const QuantizeReport report =
        quantize_to(fs::path(NIBBLE_SOURCE_DIR) / "models" / golden.source,
                    one_rule(golden.keys),
                    options);
    const nlohmann::json receipt = read_receipt(report.output);
    for (const auto& tensor : receipt.at("tensors")) {
      if (tensor.contains("relative_mse")) {
        errors[numerics][tensor.at("name")] = tensor.at("relative_mse");
      }
    }
  }
  ASSERT_FALSE(errors[Numerics::kExact].empty());
  for (const auto& [name, error] : errors[Numerics::kExact]) {
    EXPECT_LE(error, errors[Numerics::kReference].at(name)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    CompressedTensors,
    Golden,
    testing::Values(GoldenCase{"fable-dense-w4a16-g128",
                               "fable-dense",
                               R"("scheme": "int4", "group": 128)"},
                    GoldenCase{"fable-dense-w4a16-g32",
                               "fable-dense",
                               R"("scheme": "int4", "group": 32)"},
                    GoldenCase{
                        "fable-dense-w4a16-g64-asym",
                        "fable-dense",
                        R"("scheme": "int4", "group": 64, "symmetric": false)"},
                    GoldenCase{"fable-dense-w4a16-channel-asym",
                               "fable-dense",
                               R"("scheme": "int4", "group": "channel",
                      "symmetric": false)"},
                    GoldenCase{"fable-dense-w4a8",
                               "fable-dense",
                               R"("scheme": "int4", "group": 128,
                      "activations": "dynamic")"},
                    GoldenCase{"fable-dense-w8a16-channel",
                               "fable-dense",
                               R"("scheme": "int8", "group": "channel")"},
                    GoldenCase{"fable-dense-w8a8",
                               "fable-dense",
                               R"("scheme": "int8", "group": "channel",
                      "activations": "dynamic")"},
                    GoldenCase{"fable-dense-w8a8-static",
                               "fable-dense",
                               R"("scheme": "int8", "group": "channel",
                      "activations": "dynamic")",
                               true},
                    GoldenCase{"fable-dense-fp8-a16",
                               "fable-dense",
                               R"("scheme": "fp8", "group": "channel")"},
                    GoldenCase{"fable-dense-fp8-dynamic",
                               "fable-dense",
                               R"("scheme": "fp8", "group": "channel",
                      "activations": "dynamic")"},
                    GoldenCase{"fable-dense-fp8-block",
                               "fable-dense",
                               R"("scheme": "fp8", "group": [128, 128],
                      "activations": "dynamic")"},
                    GoldenCase{"fable-dense-fp8-static",
                               "fable-dense",
                               R"("scheme": "fp8", "group": "tensor")",
                               true},
                    GoldenCase{"fable-moe-w4a16-g128",
                               "fable-moe",
                               R"("scheme": "int4", "group": 128)"},
                    GoldenCase{"fable-moe-w8a8",
                               "fable-moe",
                               R"("scheme": "int8", "group": "channel",
                      "activations": "dynamic")"},
                    GoldenCase{"fable-moe-fp8-dynamic",
                               "fable-moe",
                               R"("scheme": "fp8", "group": "channel",
                      "activations": "dynamic")"},
                    GoldenCase{"fable-moe-fp8-block",
                               "fable-moe",
                               R"("scheme": "fp8", "group": [128, 128],
                      "activations": "dynamic")"}),
    [](const testing::TestParamInfo<GoldenCase>& golden) {
      std::string name = golden.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace nibble::quant
