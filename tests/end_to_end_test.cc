// The main job through the program: quantize, check, load, hear it speak.
// Bounds were recorded with this program on the bundled models; a result
// outside them means that numbers changed.
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const char* const kHeldIds = "tests/data/held-ids.json";
const char* const kPrompt =
    "Once upon a time there was a king who had three sons";

Json continue_prompt(const std::string& model) {
  return run_nibble_json({"generate",
                          model,
                          "--prompt",
                          kPrompt,
                          "--max-tokens",
                          "32",
                          "--temperature",
                          "0"});
}

// A built-in recipe on a bundled model, and what must come out: what was
// recorded with a few percent of room, as instruction sets round differently.
struct Case {
  const char* model;
  const char* recipe;
  double most_bits;  // a weight of the source, the kept ones counted too
  double most_kl;    // mean, from the source, 8 windows
  double least_top1;
  // Leading ids of the greedy continuation that equal the source's.
  std::size_t same_ids;
};

std::ostream& operator<<(std::ostream& out, const Case& test) {
  return out << test.model << " " << test.recipe;
}

class EveryRecipe : public ::testing::TestWithParam<Case> {};

TEST_P(EveryRecipe, QuantizesVerifiesAndSpeaks) {
  const Case& test = GetParam();
  const std::string source = bundled(test.model);
  const ScratchDirectory scratch;
  const std::string out = scratch.file("out");

  const Json made =
      run_nibble_json({"quantize", source, "--recipe", test.recipe, "-o", out});
  EXPECT_LE(made.at("bits_per_weight").get<double>(), test.most_bits);
  EXPECT_LT(made.at("output_bytes").get<double>(),
            made.at("source_bytes").get<double>());
  EXPECT_FALSE(fs::exists(out + ".partial"));
  EXPECT_EQ(content_of(out + "/tokenizer.json"),
            content_of(source + "/tokenizer.json"));

  const Json verified = run_nibble_json({"verify", out, "--source", source});
  EXPECT_TRUE(verified.at("ok").get<bool>()) << verified.dump();
  EXPECT_GT(verified.at("layers").size(), 0U);

  const Json inspected = run_nibble_json({"inspect", out});
  EXPECT_EQ(inspected.at("parameters"),
            run_nibble_json({"inspect", source}).at("parameters"));

  const Json scores = run_nibble_json(
      {"eval", out, "--ids", kHeldIds, "--limit", "8", "--reference", source});
  EXPECT_LE(scores.at("kl_mean").get<double>(), test.most_kl);
  EXPECT_GT(scores.at("kl_mean").get<double>(), 0);
  EXPECT_GE(scores.at("top1").get<double>(), test.least_top1);

  const std::vector<int> spoken = continue_prompt(out).at("ids");
  const std::vector<int> expected = continue_prompt(source).at("ids");
  ASSERT_GE(spoken.size(), test.same_ids);
  for (std::size_t i = 0; i < test.same_ids; ++i) {
    EXPECT_EQ(spoken[i], expected[i]) << "token " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    BuiltIn,
    EveryRecipe,
    ::testing::Values(Case{"fable-moe", "int4", 7.46, 0.03692, 0.863, 1},
                      Case{"fable-moe", "int4-g64", 7.55, 0.03286, 0.866, 1},
                      Case{"fable-moe", "int4-g32", 7.73, 0.02974, 0.880, 6},
                      Case{"fable-moe", "int4-asym", 7.60, 0.02631, 0.894, 1},
                      Case{"fable-moe", "int8", 10.29, 0.00125, 0.987, 12},
                      Case{"fable-moe", "int8-w8a8", 10.29, 0.00260, 0.969, 3},
                      Case{"fable-moe", "fp8", 10.29, 0.00614, 0.948, 3},
                      Case{"fable-moe", "fp8-block", 10.25, 0.00582, 0.953, 6},
                      Case{"fable-moe", "fp8-a16", 10.29, 0.00395, 0.965, 1},
                      Case{"fable-moe", "llama4-int4", 7.46, 0.03692, 0.863, 1},
                      Case{"fable-dense", "int4", 5.83, 0.05824, 0.845, 1},
                      Case{"fable-dense", "int4-g64", 5.94, 0.04857, 0.846, 3},
                      Case{"fable-dense", "int4-g32", 6.16, 0.04056, 0.866, 3},
                      Case{"fable-dense", "int4-asym", 5.99, 0.03661, 0.871, 6},
                      Case{"fable-dense", "int8", 9.20, 0.00024, 0.985, 12},
                      Case{
                          "fable-dense", "int8-w8a8", 9.20, 0.00166, 0.969, 12},
                      Case{"fable-dense", "fp8", 9.20, 0.00666, 0.937, 3},
                      Case{"fable-dense", "fp8-block", 9.15, 0.00624, 0.944, 3},
                      Case{"fable-dense", "fp8-a16", 9.20, 0.00302, 0.954, 12}),
    [](const ::testing::TestParamInfo<Case>& test) {
      std::string name =
          std::string(test.param.model) + "_" + test.param.recipe;
      for (char& c : name) {
        c = c == '-' ? '_' : c;
      }
      return name;
    });

// Perplexity of the source as another implementation computes it.
TEST(EndToEnd, SourcesHaveTheirPerplexity) {
  for (const auto& [model, nll] : std::vector<std::pair<std::string, double>>{
           {"fable-moe", 3.340552404522896},
           {"fable-dense", 3.2629116401076317}}) {
    const Json scores =
        run_nibble_json({"eval", bundled(model), "--ids", kHeldIds});
    EXPECT_EQ(scores.at("windows"), 32);
    EXPECT_NEAR(scores.at("nll").get<double>(), nll, 2e-4) << model;
    EXPECT_NEAR(scores.at("perplexity").get<double>(), std::exp(nll), 5e-3);
  }
}

TEST(EndToEnd, TheResultDoesNotDependOnThreadsMemoryOrInstructionSet) {
  const ScratchDirectory scratch;
  std::optional<std::string> first;
  int run = 0;
  for (const char* threads : {"1", "3"}) {
    for (const char* isa : {"portable", "avx512"}) {
      const std::string out = scratch.file("out" + std::to_string(run++));
      const ProgramResult result =
          run_nibble({"quantize",
                      bundled("fable-moe"),
                      "--recipe",
                      "int4",
                      "--threads",
                      threads,
                      "--memory",
                      *threads == '1' ? "8GiB" : "64MiB",
                      "-o",
                      out},
                     "",
                     {std::string("NIBBLE_ISA=") + isa});
      ASSERT_EQ(result.status, 0) << result.error;
      const std::string weights = content_of(out + "/model.safetensors");
      first = first.value_or(weights);
      EXPECT_EQ(weights == *first, true) << threads << " threads, " << isa;
    }
  }
}

TEST(EndToEnd, AQuantizedCheckpointIsNoSource) {
  const ScratchDirectory scratch;
  ASSERT_EQ(run_nibble({"quantize",
                        bundled("fable-dense"),
                        "--recipe",
                        "int8",
                        "-o",
                        scratch.file("a")})
                .status,
            0);
  const ProgramResult result = run_nibble({"quantize",
                                           scratch.file("a"),
                                           "--recipe",
                                           "int4",
                                           "-o",
                                           scratch.file("b")});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.error, ::testing::HasSubstr("quantized"));
}

TEST(EndToEnd, ShardsHoldTheSameAsOneFile) {
  const ScratchDirectory scratch;
  const std::string one = scratch.file("one");
  const std::string many = scratch.file("many");
  for (const auto& [out, size] :
       {std::pair(one, "5GB"), std::pair(many, "1MB")}) {
    ASSERT_EQ(run_nibble({"quantize",
                          bundled("fable-moe"),
                          "--recipe",
                          "fp8",
                          "--shard-size",
                          size,
                          "-o",
                          out})
                  .status,
              0);
  }
  EXPECT_TRUE(fs::exists(many + "/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(one + "/model.safetensors.index.json"));
  EXPECT_EQ(continue_prompt(one).at("ids"), continue_prompt(many).at("ids"));
}

// The walk of a program that never learns of quantization.
TEST(EndToEnd, DenseProgramSaysTheSame) {
  const ProgramResult dense =
      run_program(NIBBLE_DENSE_PROGRAM, {bundled("fable-moe"), kPrompt, "32"});
  ASSERT_EQ(dense.status, 0) << dense.error;
  EXPECT_EQ(
      dense.out,
      continue_prompt(bundled("fable-moe")).at("text").get<std::string>() +
          "\n");
}

// The table and the head take a third of so small a model.
TEST(Embedding, FourAndEightBitsAreQuantizedLoadedAndSpeak) {
  const struct {
    const char* model;
    const char* match;
    const char* scheme;
    double most_kl;
  } kCases[] = {
      {"fable-moe", R"(["*.embed_tokens", "lm_head"])", "int8", 0.002},
      {"fable-moe", R"(["*.embed_tokens", "lm_head"])", "int4", 0.2},
      {"fable-dense", R"("model.embed_tokens")", "int8", 0.002}};

  for (const auto& test : kCases) {
    SCOPED_TRACE(std::string(test.model) + " " + test.scheme);
    const std::string source = bundled(test.model);
    const ScratchDirectory scratch;
    const std::string out = scratch.file("out");
    const std::string recipe =
        std::string(R"({"version": 1, "rules": [{"match": )") + test.match +
        R"(, "scheme": ")" + test.scheme +
        R"(", "group": "channel", "force": true},
            {"match": "*", "scheme": "int8"}]})";
    const Json made =
        run_nibble_json({"quantize", source, "--recipe", recipe, "-o", out});
    EXPECT_LE(made.at("bits_per_weight").get<double>(), 9.1);
    EXPECT_TRUE(run_nibble_json({"verify", out, "--source", source})
                    .at("ok")
                    .get<bool>());
    const Json scores = run_nibble_json({"eval",
                                         out,
                                         "--ids",
                                         kHeldIds,
                                         "--limit",
                                         "8",
                                         "--reference",
                                         source});
    EXPECT_LE(scores.at("kl_mean").get<double>(), test.most_kl);
    EXPECT_GT(scores.at("kl_mean").get<double>(), 0);
    EXPECT_EQ(continue_prompt(out).at("ids").size(), 32U);
  }
}

}  // namespace
}  // namespace nibble
