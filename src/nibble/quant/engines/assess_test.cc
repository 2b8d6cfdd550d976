#include "nibble/quant/engines/assess.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble::quant {
namespace {

LayerSpec int_spec(int bits, std::int64_t group, bool symmetric = true) {
  LayerSpec spec;
  spec.weight.scheme = bits == 4 ? "int4" : "int8";
  spec.weight.bits = bits;
  spec.weight.symmetric = symmetric;
  spec.weight.grain = group > 0 ? Grain::kGroup : Grain::kChannel;
  spec.weight.group = group;
  return spec;
}

LayerSpec fp8_spec(bool block) {
  LayerSpec spec;
  spec.weight.scheme = "fp8";
  spec.weight.floating = true;
  spec.weight.grain = block ? Grain::kBlock : Grain::kChannel;
  spec.weight.block_rows = block ? 128 : 0;
  spec.weight.block_columns = block ? 128 : 0;
  spec.input = spec.weight;
  spec.input->grain = block ? Grain::kGroup : Grain::kToken;
  spec.input->group = block ? 128 : 0;
  return spec;
}

// One layer of a model, quantized as spec says.
ModelFacts one_layer(const LayerSpec& spec,
                     model::Role role = model::Role::kMlp,
                     const std::string& family = "llama",
                     std::int64_t rows = 1024,
                     std::int64_t columns = 1024) {
  ModelFacts facts;
  facts.family = family;
  facts.format = "compressed_tensors";
  facts.layers.push_back(
      {"model.layers.0.mlp.up_proj", role, rows, columns, &spec});
  return facts;
}

Verdict verdict(const std::string& engine, const ModelFacts& model) {
  return assess(engine_named(engine), model).verdict;
}

TEST(Assess, Int4ByGroupIsWhatVllmAndSglangServe) {
  const LayerSpec spec = int_spec(4, 128);
  const ModelFacts model = one_layer(spec);
  EXPECT_EQ(verdict("vllm", model), Verdict::kAccepted);
  EXPECT_EQ(verdict("sglang", model), Verdict::kAccepted);
  EXPECT_EQ(verdict("transformers", model), Verdict::kAccepted);
  EXPECT_EQ(verdict("llama.cpp", model), Verdict::kAccepted);
  EXPECT_EQ(verdict("tensorrt-llm", model), Verdict::kRefused);
}

TEST(Assess, Fp8ByChannelIsWhatAllServe) {
  const LayerSpec spec = fp8_spec(false);
  for (const EngineCuts& engine : engines()) {
    EXPECT_EQ(assess(engine, one_layer(spec)).verdict, Verdict::kAccepted)
        << engine.engine;
  }
}

TEST(Assess, ExpertsMustBeSymmetric) {
  const LayerSpec spec = int_spec(4, 64, /*symmetric=*/false);
  EXPECT_EQ(verdict("vllm", one_layer(spec)), Verdict::kAccepted);
  EXPECT_EQ(verdict("vllm", one_layer(spec, model::Role::kExpert)),
            Verdict::kRefused);
  EXPECT_EQ(verdict("sglang", one_layer(spec, model::Role::kExpert)),
            Verdict::kRefused);
}

TEST(Assess, Llama4ExpertsNeedGroups) {
  const LayerSpec group = int_spec(4, 128);
  const LayerSpec channel = int_spec(8, 0);
  const auto expert = model::Role::kExpert;
  EXPECT_EQ(verdict("vllm", one_layer(group, expert, "llama4")),
            Verdict::kAccepted);
  EXPECT_EQ(verdict("vllm", one_layer(channel, expert, "llama4")),
            Verdict::kUnknown);
  EXPECT_EQ(verdict("vllm", one_layer(channel, expert)), Verdict::kAccepted);
  EXPECT_EQ(verdict("llama.cpp", one_layer(group, expert, "llama4")),
            Verdict::kRefused);
}

TEST(Assess, RowsOfQueriesAreReorderedForLlama4) {
  const LayerSpec block = fp8_spec(true);
  ModelFacts model = one_layer(block, model::Role::kAttention, "llama4");
  EXPECT_EQ(verdict("vllm", model), Verdict::kAccepted);
  model.layers.front().module = "model.layers.0.self_attn.q_proj";
  EXPECT_EQ(verdict("vllm", model), Verdict::kRefused);
  model.family = "llama";
  EXPECT_EQ(verdict("vllm", model), Verdict::kAccepted);
}

TEST(Assess, BlocksOfExpertsMustBeWhole) {
  const LayerSpec block = fp8_spec(true);
  const auto expert = model::Role::kExpert;
  EXPECT_EQ(verdict("vllm", one_layer(block, expert, "plain", 768, 2880)),
            Verdict::kAccepted);
  EXPECT_EQ(verdict("vllm", one_layer(block, expert, "plain", 200, 2880)),
            Verdict::kRefused);
}

TEST(Assess, AShapeBesideMarlinsTilesIsNotKnownToLoad) {
  const LayerSpec spec = int_spec(4, 32);
  const EngineReport report =
      assess(engine_named("vllm"),
             one_layer(spec, model::Role::kMlp, "llama", 1536, 576));
  EXPECT_EQ(report.verdict, Verdict::kUnknown);
  EXPECT_NE(report.findings.front().reason.find("1536 x 576"),
            std::string::npos);
  EXPECT_NE(report.findings.front().source.find("marlin.py"),
            std::string::npos);
}

TEST(Assess, AnotherLayoutIsNotKnown) {
  const LayerSpec spec = int_spec(4, 32);
  ModelFacts model = one_layer(spec);
  model.format = "gpt_fast";
  EXPECT_EQ(verdict("vllm", model), Verdict::kUnknown);
}

TEST(Assess, LayersWithTheSameAnswerAreOneFinding) {
  const LayerSpec spec = int_spec(4, 128);
  ModelFacts model = one_layer(spec);
  for (int i = 0; i < 3; ++i) {
    model.layers.push_back(
        {"model.layers.1.mlp.up_proj", model::Role::kMlp, 1024, 1024, &spec});
  }
  model.layers.push_back(
      {"lm_head", model::Role::kHead, 1024, 1024, nullptr});  // dense
  const EngineReport report = assess(engine_named("vllm"), model);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings.front().layers, 4U);
  EXPECT_EQ(report.findings.front().module, "model.layers.0.mlp.up_proj");
}

TEST(Assess, LlamaCppTakesOneScheme) {
  const LayerSpec four = int_spec(4, 128);
  const LayerSpec eight = int_spec(8, 128);
  ModelFacts model = one_layer(four);
  EXPECT_EQ(verdict("llama.cpp", model), Verdict::kAccepted);
  model.layers.push_back(
      {"model.layers.0.mlp.down_proj", model::Role::kMlp, 1024, 1024, &eight});
  EXPECT_EQ(verdict("llama.cpp", model), Verdict::kRefused);
  EXPECT_EQ(verdict("vllm", model), Verdict::kAccepted);
}

TEST(Assess, ADenseModelIsAccepted) {
  ModelFacts model;
  model.family = "llama";
  model.format = "compressed_tensors";
  model.layers.push_back({"lm_head", model::Role::kHead, 1024, 1024, nullptr});
  for (const EngineCuts& engine : engines()) {
    EXPECT_EQ(assess(engine, model).verdict, Verdict::kAccepted);
  }
}

TEST(Assess, ARefusalNamesModuleReasonAndWhatIsAccepted) {
  const LayerSpec spec = int_spec(4, 128);
  const std::vector<std::string> names = {"vllm", "tensorrt-llm"};
  expect_error(ErrorCode::kUnsupported,
               "module model.layers.0.mlp.up_proj",
               [&] { refuse_unless_accepted(names, one_layer(spec)); });
  expect_error(ErrorCode::kUnsupported,
               "found int4 group 128, which tensorrt-llm refuses",
               [&] { refuse_unless_accepted(names, one_layer(spec)); });
  expect_error(ErrorCode::kUnsupported, "fp8 by channel, token inputs", [&] {
    refuse_unless_accepted(names, one_layer(spec));
  });
  const std::vector<std::string> fine = {"vllm", "sglang"};
  refuse_unless_accepted(fine, one_layer(spec));
}

}  // namespace
}  // namespace nibble::quant
