// The commands that write and convert Meta's and gpt-fast's files, through the
// program.

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr int kWrongUse = 2;
constexpr int kRefused = 3;

std::string text_of(const std::string& model) {
  return run_nibble_json({"generate",
                          model,
                          "--prompt",
                          "Once upon a time",
                          "--max-tokens",
                          "12",
                          "--json"})
      .at("text")
      .get<std::string>();
}

// Fails with this status and these words.
void expect_refusal(const std::vector<std::string>& arguments,
                    int status,
                    const std::string& words) {
  const ProgramResult result = run_nibble(arguments);
  EXPECT_EQ(result.status, status) << result.error;
  EXPECT_NE(result.error.find(words), std::string::npos) << result.error;
}

TEST(NativeProgram, QuantizesToMetasShardsAndRunsThem) {
  const ScratchDirectory here;
  const std::string out = here.file("out");
  const nlohmann::json report = run_nibble_json({"quantize",
                                                 bundled("fable-moe"),
                                                 "--layout",
                                                 "meta",
                                                 "--scheme",
                                                 "int4_mixed",
                                                 "--shards",
                                                 "2",
                                                 "-o",
                                                 out,
                                                 "--json"});
  EXPECT_LT(report.at("output_bytes").get<double>(),
            report.at("source_bytes").get<double>());
  EXPECT_TRUE(fs::exists(fs::path(out) / "int4_scales_1.pt"));
  EXPECT_EQ(
      run_nibble({"verify", out, "--source", bundled("fable-moe")}).status, 0);
  EXPECT_FALSE(text_of(out).empty());
  // In one shard it says the same.
  const std::string one = here.file("one");
  const nlohmann::json converted = run_nibble_json(
      {"convert", out, "--to", "meta", "--shards", "1", "-o", one, "--json"});
  EXPECT_TRUE(converted.at("exact").get<bool>());
  EXPECT_FALSE(converted.at("tensors").empty());
  EXPECT_EQ(text_of(one), text_of(out));
}

TEST(NativeProgram, QuantizesToGptFastsFiles) {
  const ScratchDirectory here;
  const std::string out = here.file("out");
  const ProgramResult result = run_nibble({"quantize",
                                           bundled("fable-dense"),
                                           "--layout",
                                           "gpt-fast",
                                           "--scheme",
                                           "int4",
                                           "--group",
                                           "64",
                                           "--inner-k-tiles",
                                           "4",
                                           "-o",
                                           out});
  ASSERT_EQ(result.status, 0) << result.error;
  EXPECT_TRUE(fs::exists(fs::path(out) / "model_int4.g64.pth"));
  EXPECT_EQ(
      run_nibble({"verify", out, "--source", bundled("fable-dense")}).status,
      0);
  EXPECT_FALSE(text_of(out + "/model_int4.g64.pth").empty());
}

TEST(NativeProgram, QuantizesWhileLoading) {
  const ScratchDirectory here;
  const std::string dense = here.file("dense");
  ASSERT_EQ(run_nibble({"convert",
                        bundled("fable-moe"),
                        "--to",
                        "meta",
                        "--shards",
                        "2",
                        "-o",
                        dense})
                .status,
            0);
  const std::string out = here.file("out");
  ASSERT_EQ(run_nibble({"quantize",
                        dense,
                        "--layout",
                        "meta",
                        "--scheme",
                        "fp8_mixed",
                        "-o",
                        out})
                .status,
            0);
  const nlohmann::json answer = run_nibble_json({"generate",
                                                 dense,
                                                 "--quantize",
                                                 "fp8_mixed",
                                                 "--prompt",
                                                 "Once upon a time",
                                                 "--max-tokens",
                                                 "12",
                                                 "--json"});
  EXPECT_EQ(answer.at("text").get<std::string>(), text_of(out));
}

TEST(NativeProgram, PlansWithoutWriting) {
  const ScratchDirectory here;
  const ProgramResult plan = run_nibble({"quantize",
                                         bundled("fable-moe"),
                                         "--layout",
                                         "meta",
                                         "--scheme",
                                         "int4_mixed",
                                         "--shards",
                                         "8",
                                         "--dry-run"});
  EXPECT_EQ(plan.status, 0) << plan.error;
  EXPECT_NE(plan.out.find("int4 group 32"), std::string::npos) << plan.out;
}

TEST(NativeProgram, RefusesOptionsThatDoNotFitTogether) {
  const ScratchDirectory here;
  const std::string out = here.file("out");
  const std::vector<std::string> quantize{
      "quantize", bundled("fable-moe"), "-o", out};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = quantize;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  expect_refusal(with({}), kWrongUse, "one of --recipe and --scheme");
  expect_refusal(with({"--scheme", "int4_mixed"}),
                 kWrongUse,
                 "no such option with the layout hf");
  expect_refusal(
      with({"--recipe", "int4", "--shards", "2"}), kWrongUse, "--shard-size");
  expect_refusal(
      with({"--layout", "meta", "--scheme", "int4_mixed", "--group", "64"}),
      kWrongUse,
      "the layout gpt-fast");
  expect_refusal(with({"--layout", "meta", "--recipe", "int4"}),
                 kWrongUse,
                 "int4_mixed or fp8_mixed");
  expect_refusal(
      with({"--layout", "meta", "--scheme", "int4_mixed", "--shards", "3"}),
      kWrongUse,
      "any divisor of 8");
  expect_refusal(
      with({"--layout", "gpt-fast", "--scheme", "int8"}), kRefused, "Llama 4");
  expect_refusal({"quantize",
                  bundled("fable-dense"),
                  "--layout",
                  "gpt-fast",
                  "--scheme",
                  "int4-gptq",
                  "-o",
                  out},
                 kRefused,
                 "int4-gptq");
  expect_refusal({"quantize",
                  bundled("fable-dense"),
                  "--layout",
                  "gpt-fast",
                  "--scheme",
                  "int4",
                  "--inner-k-tiles",
                  "4",
                  "--int4-layout",
                  "bytes",
                  "-o",
                  out},
                 kWrongUse,
                 "no tiles");
  EXPECT_FALSE(fs::exists(out));
}

TEST(NativeProgram, RefusesConversionsThatCannotBe) {
  const ScratchDirectory here;
  const std::string out = here.file("out");
  expect_refusal({"convert",
                  bundled("fable-moe"),
                  "--to",
                  "hf",
                  "--shards",
                  "2",
                  "-o",
                  out},
                 kWrongUse,
                 "--shards");
  expect_refusal({"convert", bundled("fable-moe"), "--to", "gguf", "-o", out},
                 kWrongUse,
                 "--to");
  expect_refusal({"convert",
                  bundled("fable-moe"),
                  "--to",
                  "hf",
                  "--requantize",
                  "int4",
                  "-o",
                  out},
                 kWrongUse,
                 "nibble quantize");
  const std::string asymmetric = here.file("asym");
  ASSERT_EQ(run_nibble({"quantize",
                        bundled("fable-moe"),
                        "--recipe",
                        "int4-asym",
                        "-o",
                        asymmetric})
                .status,
            0);
  expect_refusal({"convert", asymmetric, "--to", "meta", "-o", out},
                 kRefused,
                 "--requantize");
  EXPECT_FALSE(fs::exists(out));
  const nlohmann::json again = run_nibble_json({"convert",
                                                asymmetric,
                                                "--to",
                                                "meta",
                                                "--requantize",
                                                "int4_mixed",
                                                "-o",
                                                out,
                                                "--json"});
  EXPECT_FALSE(again.at("exact").get<bool>());
}

}  // namespace
}  // namespace nibble
