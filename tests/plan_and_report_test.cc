// Through the program: what a plan tells, what engines say, and the pages that
// `report` and `compare` write.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

TEST(Quantize, DryRunFoldsTheFatesAndListsThemAllWhenVerbose) {
  const ScratchDirectory scratch;
  const std::vector<std::string> arguments = {"quantize",
                                              bundled("fable-moe"),
                                              "--recipe",
                                              "int4",
                                              "-o",
                                              scratch.file("out"),
                                              "--dry-run"};
  const ProgramResult folded = run_nibble(arguments);
  EXPECT_EQ(folded.status, 0) << folded.error;
  EXPECT_THAT(folded.out, HasSubstr("attention is on the keep list of llama4"));
  EXPECT_THAT(folded.out, HasSubstr("int4 group 128"));
  EXPECT_THAT(folded.out, HasSubstr("time         about"));
  EXPECT_THAT(folded.out, HasSubstr("ranks        1, 2 (vllm, sglang); not 4"));
  EXPECT_THAT(folded.out, HasSubstr("llama.cpp     refuses"));
  EXPECT_EQ(folded.out.find("experts.3.up_proj"), std::string::npos);

  std::vector<std::string> verbose = arguments;
  verbose.emplace_back("--verbose");
  EXPECT_THAT(run_nibble(verbose).out,
              HasSubstr("model.layers.1.feed_forward.experts.3.up_proj"));
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(Quantize, DryRunTellsTimeDiskRanksAndEngines) {
  const Json plan = run_nibble_json({"quantize",
                                     bundled("fable-moe"),
                                     "--recipe",
                                     "fp8",
                                     "--dry-run",
                                     "--for",
                                     "vllm,tensorrt-llm"});
  EXPECT_GT(plan.at("time").at("seconds").get<double>(), 0);
  EXPECT_GT(plan.at("time").at("measured").at("read_bytes").get<int>(), 0);
  EXPECT_GT(plan.at("disk").at("free_bytes").get<double>(), 0);
  ASSERT_EQ(plan.at("engines").size(), 2U);
  EXPECT_EQ(plan.at("engines").at(1).at("engine"), "tensorrt-llm");
  EXPECT_EQ(plan.at("engines").at(1).at("verdict"), "accepts");
  // By channel no group is cut, so heads decide.
  EXPECT_EQ(plan.at("tensor_parallel").at(0).at("degrees"),
            (Json{1, 2, 4, 8, 16}));
  EXPECT_EQ(plan.at("expert_parallel"), (Json{1, 2, 4, 8}));
}

TEST(Quantize, ForAnEngineRefusesWhatItRefuses) {
  const ScratchDirectory scratch;
  for (const bool dry : {false, true}) {
    std::vector<std::string> arguments = {"quantize",
                                          bundled("fable-moe"),
                                          "--recipe",
                                          "int4",
                                          "-o",
                                          scratch.file("out"),
                                          "--for",
                                          "vllm",
                                          "--for",
                                          "tensorrt-llm"};
    if (dry) {
      arguments.emplace_back("--dry-run");
    }
    const ProgramResult run = run_nibble(arguments);
    EXPECT_EQ(run.status, 3) << run.error;
    EXPECT_THAT(run.error,
                HasSubstr("module model.layers.0.feed_forward.down_proj: found "
                          "int4 group 128, which tensorrt-llm refuses"));
    EXPECT_THAT(run.error, HasSubstr("expected fp8 by channel, token inputs"));
    EXPECT_THAT(run.error, HasSubstr("hint: "));
    EXPECT_EQ(run.out.empty(), !dry);
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(Quantize, ForAnUnknownEngineSuggestsTheNearest) {
  const ProgramResult run = run_nibble({"quantize",
                                        bundled("fable-moe"),
                                        "--recipe",
                                        "int4",
                                        "--dry-run",
                                        "--for",
                                        "sglan"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.error, HasSubstr("engine: found sglan"));
  EXPECT_THAT(run.error, HasSubstr("did you mean sglang?"));
}

TEST(Engines, ListsRulesCutsAndSources) {
  const Json all = run_nibble_json({"engines"});
  EXPECT_EQ(all.at("engines").size(), 5U);
  EXPECT_GT(all.at("rules").size(), 50U);
  EXPECT_GT(all.at("sources").size(), 10U);
  const Json one = run_nibble_json({"engines", "llama.cpp"});
  for (const Json& rule : one.at("rules")) {
    EXPECT_EQ(rule.at("engine"), "llama.cpp");
  }
  EXPECT_EQ(run_nibble({"engines", "llamacpp"}).status, 2);
}

// A quantized copy of the bundled model.
std::string quantized(const ScratchDirectory& scratch,
                      const std::string& recipe) {
  const std::string out = scratch.file("model-" + recipe);
  const ProgramResult run = run_nibble(
      {"quantize", bundled("fable-moe"), "--recipe", recipe, "-o", out});
  EXPECT_EQ(run.status, 0) << run.error;
  return out;
}

void expect_self_contained(const std::string& page) {
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  for (const char* outside : {"<script", "http:", "https:", "<img", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside))) << outside;
  }
}

TEST(Report, WritesOnePageThatNeedsNoOther) {
  const ScratchDirectory scratch;
  const std::string page_file = scratch.file("page.html");
  const ProgramResult run =
      run_nibble({"report", quantized(scratch, "int4"), "-o", page_file});
  EXPECT_EQ(run.status, 0) << run.error;
  EXPECT_THAT(run.out, HasSubstr("page.html: "));
  const std::string page = content_of(page_file);
  expect_self_contained(page);
  EXPECT_THAT(page, HasSubstr("model-int4"));
  EXPECT_THAT(page, HasSubstr("The 10 matrices that lost most"));
}

TEST(Report, OfACheckpointWithoutAReceiptAndOfADenseOne) {
  const ScratchDirectory scratch;
  const std::string out = quantized(scratch, "fp8");
  fs::remove(fs::path(out) / "nibble.json");
  const std::string page_file = scratch.file("page.html");
  EXPECT_EQ(run_nibble({"report", out, "-o", page_file}).status, 0);
  EXPECT_THAT(content_of(page_file), HasSubstr("Errors are not known"));
  EXPECT_THAT(content_of(page_file), HasSubstr("Scales"));

  EXPECT_EQ(
      run_nibble({"report", bundled("fable-dense"), "-o", page_file}).status,
      0);
  EXPECT_THAT(content_of(page_file), HasSubstr("Size by kind"));
}

TEST(Report, RefusesADirectoryAsItsFileAndADamagedReceipt) {
  const ScratchDirectory scratch;
  const std::string out = quantized(scratch, "int8");
  EXPECT_EQ(run_nibble({"report", out, "-o", scratch.path().string()}).status,
            2);
  write_content(fs::path(out) / "nibble.json", "{\"version\": 1}");
  const ProgramResult run =
      run_nibble({"report", out, "-o", scratch.file("page.html")});
  EXPECT_EQ(run.status, 3);
  EXPECT_THAT(run.error, HasSubstr("nibble.json"));
  EXPECT_FALSE(fs::exists(scratch.file("page.html")));
}

TEST(Compare, TellsSchemesAndWritesAPage) {
  const ScratchDirectory scratch;
  const std::string page_file = scratch.file("page.html");
  const Json rows = run_nibble_json({"compare",
                                     bundled("fable-moe"),
                                     "int4-asym",
                                     "fp8-block",
                                     "--text",
                                     "models/held.txt",
                                     "--limit",
                                     "1",
                                     "--window",
                                     "64",
                                     "--html",
                                     page_file})
                        .at("rows");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].at("recipe"), "source");
  EXPECT_EQ(rows[0].at("scheme"), "BF16");
  EXPECT_EQ(rows[1].at("scheme"), "int4 asymmetric");
  EXPECT_EQ(rows[1].at("bits"), (Json{4}));
  EXPECT_EQ(rows[1].at("group"), "64");
  EXPECT_EQ(rows[1].at("activations"), "none");
  EXPECT_EQ(rows[2].at("group"), "128 x 128");
  EXPECT_EQ(rows[2].at("activations"), "fp8 per 128");
  for (const char* key : {"bytes",
                          "perplexity",
                          "kl_mean",
                          "prompt_tokens_per_second",
                          "generated_tokens_per_second",
                          "peak_rss_bytes"}) {
    EXPECT_GT(rows[1].at(key).get<double>(), 0) << key;
  }
  const std::string page = content_of(page_file);
  expect_self_contained(page);
  EXPECT_THAT(page, HasSubstr("Size against distance from the source"));
  EXPECT_THAT(page, HasSubstr(">int4-asym</text>"));
}

TEST(Compare, RefusesADirectoryAsItsPage) {
  const ScratchDirectory scratch;
  EXPECT_EQ(run_nibble({"compare",
                        bundled("fable-moe"),
                        "int4",
                        "--text",
                        "models/held.txt",
                        "--html",
                        scratch.path().string()})
                .status,
            2);
}

TEST(Recipes, EveryBuiltinFitsABundledModel) {
  const Json recipes = run_nibble_json({"recipes"}).at("recipes");
  for (const Json& recipe : recipes) {
    const auto name = recipe.at("name").get<std::string>();
    const ProgramResult run =
        run_nibble({"recipes", "check", name, "--model", bundled("fable-moe")});
    EXPECT_EQ(run.status, 0) << name << ": " << run.error;
    EXPECT_THAT(run.out, HasSubstr("60 weights are quantized")) << name;
  }
}

}  // namespace
}  // namespace nibble
