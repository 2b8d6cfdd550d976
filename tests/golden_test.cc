// Checkpoints that another tool wrote, through the program.
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program.h"
#include "reference_data.h"

namespace nibble {
namespace {

using Json = nlohmann::json;

// Checkpoints that another tool wrote are loaded and score as it says, with
// declared activation quantization computed.
class Golden : public ::testing::TestWithParam<const char*> {};

TEST_P(Golden, ScoresAsItsWriterSays) {
  const std::string name = GetParam();
  NIBBLE_REFERENCE_OR_SKIP(path, "golden/compressed-tensors/" + name);
  const Json expected = Json::parse(content_of(path / "reference.json"));
  const Json scores = run_nibble_json(
      {"eval", path.string(), "--ids", "tests/data/held-ids.json"});
  const double perplexity = expected.at("ppl_f32");
  EXPECT_NEAR(
      scores.at("perplexity").get<double>(), perplexity, 0.005 * perplexity);
}

INSTANTIATE_TEST_SUITE_P(CompressedTensors,
                         Golden,
                         ::testing::Values("fable-dense-fp8-a16",
                                           "fable-dense-fp8-block",
                                           "fable-dense-fp8-dynamic",
                                           "fable-dense-fp8-static",
                                           "fable-dense-w4a16-channel-asym",
                                           "fable-dense-w4a16-g128",
                                           "fable-dense-w4a16-g32",
                                           "fable-dense-w4a16-g64-asym",
                                           "fable-dense-w4a8",
                                           "fable-dense-w8a16-channel",
                                           "fable-dense-w8a8",
                                           "fable-dense-w8a8-static",
                                           "fable-moe-fp8-block",
                                           "fable-moe-fp8-dynamic",
                                           "fable-moe-w4a16-g128",
                                           "fable-moe-w8a8"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) {
                             c = c == '-' ? '_' : c;
                           }
                           return name;
                         });

}  // namespace
}  // namespace nibble
