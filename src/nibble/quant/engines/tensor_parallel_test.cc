#include "nibble/quant/engines/tensor_parallel.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace nibble::quant {
namespace {

using Degrees = std::vector<std::int64_t>;

LayerSpec group_spec(std::int64_t group) {
  LayerSpec spec;
  spec.weight.scheme = "int4";
  spec.weight.bits = 4;
  spec.weight.grain = Grain::kGroup;
  spec.weight.group = group;
  return spec;
}

// hidden 512, intermediate as given, 8 heads, 2 of keys and values.
ModelFacts model_of(const LayerSpec* spec, std::int64_t intermediate) {
  ModelFacts facts;
  facts.family = "llama";
  facts.format = "compressed_tensors";
  facts.heads = 8;
  facts.kv_heads = 2;
  facts.vocabulary = 1000;
  using model::Role;
  facts.layers = {
      {"model.layers.0.self_attn.q_proj", Role::kAttention, 512, 512, nullptr},
      {"model.layers.0.self_attn.k_proj", Role::kAttention, 128, 512, nullptr},
      {"model.layers.0.self_attn.v_proj", Role::kAttention, 128, 512, nullptr},
      {"model.layers.0.self_attn.o_proj", Role::kAttention, 512, 512, nullptr},
      {"model.layers.0.mlp.gate_proj", Role::kMlp, intermediate, 512, spec},
      {"model.layers.0.mlp.up_proj", Role::kMlp, intermediate, 512, spec},
      {"model.layers.0.mlp.down_proj", Role::kMlp, 512, intermediate, spec},
      {"lm_head", Role::kHead, 1000, 512, nullptr}};
  return facts;
}

TEST(ParallelDegrees, KeysAndValuesAreRepeatedWhereTheEngineDoes) {
  const ModelFacts model = model_of(nullptr, 1024);
  EXPECT_EQ(parallel_degrees(engine_named("vllm"), model).degrees,
            (Degrees{1, 2, 4, 8}));
  // Nothing is taken for granted of others: two heads over two ranks.
  const ParallelDegrees strict =
      parallel_degrees(engine_named("tensorrt-llm"), model);
  EXPECT_EQ(strict.degrees, (Degrees{1, 2}));
  ASSERT_FALSE(strict.refused.empty());
  EXPECT_EQ(strict.refused.front().degree, 4);
  EXPECT_EQ(strict.refused.front().module, "num_key_value_heads");
}

TEST(ParallelDegrees, RowParallelPartsEndAtWholeGroups) {
  const LayerSpec spec = group_spec(128);
  // 768 = 6 groups: 2 ranks get 3 each, 4 would cut one.
  const ParallelDegrees degrees =
      parallel_degrees(engine_named("vllm"), model_of(&spec, 768));
  EXPECT_EQ(degrees.degrees, (Degrees{1, 2}));
  ASSERT_EQ(degrees.refused.size(), 2U);
  EXPECT_EQ(degrees.refused.front().degree, 4);
  EXPECT_EQ(degrees.refused.front().module, "model.layers.0.mlp.down_proj");
  EXPECT_NE(degrees.refused.front().reason.find("whole groups of 128"),
            std::string::npos);

  const LayerSpec small = group_spec(32);
  EXPECT_EQ(
      parallel_degrees(engine_named("vllm"), model_of(&small, 768)).degrees,
      (Degrees{1, 2, 4, 8}));
}

TEST(ParallelDegrees, AnOddNumberOfGroupsCannotBeHalved) {
  const LayerSpec spec = group_spec(128);
  EXPECT_EQ(parallel_degrees(engine_named("vllm"),
                             model_of(&spec, std::int64_t{107} * 128))
                .degrees,
            (Degrees{1}));
}

TEST(ParallelDegrees, PartsByChannelEndAtWholeWords) {
  LayerSpec spec;
  spec.weight.scheme = "int4";
  spec.weight.bits = 4;
  spec.weight.grain = Grain::kChannel;
  // 8 codes a word: 24 columns can be cut in 3 only.
  const ParallelDegrees degrees =
      parallel_degrees(engine_named("vllm"), model_of(&spec, 24));
  EXPECT_EQ(degrees.degrees, (Degrees{1}));
  EXPECT_NE(degrees.refused.front().reason.find("packed words of 8"),
            std::string::npos);
}

TEST(ParallelDegrees, ZeroPointsArePackedAlongRows) {
  LayerSpec spec = group_spec(32);
  ModelFacts model = model_of(&spec, 1024);
  // Eight zero points of four bits share a word: 64 rows over 16 ranks leave
  // half a word.
  model.heads = 16;
  model.kv_heads = 16;
  for (LayerFacts& layer : model.layers) {
    if (layer.module.ends_with("gate_proj")) {
      layer.rows = 64;
    }
  }
  EXPECT_EQ(parallel_degrees(engine_named("vllm"), model).degrees.back(), 16);
  spec.weight.symmetric = false;
  EXPECT_EQ(parallel_degrees(engine_named("vllm"), model).degrees.back(), 8);
}

TEST(ParallelDegrees, BlocksAreCutWhole) {
  LayerSpec spec;
  spec.weight.floating = true;
  spec.weight.grain = Grain::kBlock;
  spec.weight.block_rows = 128;
  spec.weight.block_columns = 128;
  EXPECT_EQ(
      parallel_degrees(engine_named("vllm"), model_of(&spec, 512)).degrees,
      (Degrees{1, 2, 4}));
}

TEST(ParallelDegrees, TheVocabularyIsPaddedOrDivides) {
  ModelFacts model = model_of(nullptr, 1024);
  model.kv_heads = 8;
  model.vocabulary = 1001;
  model.layers.back().rows = 1001;
  EXPECT_EQ(parallel_degrees(engine_named("vllm"), model).degrees,
            (Degrees{1, 2, 4, 8}));
  EXPECT_EQ(parallel_degrees(engine_named("tensorrt-llm"), model).degrees,
            (Degrees{1}));
}

TEST(ParallelDegrees, WithoutHeadsTheMatricesDecide) {
  ModelFacts model;
  model.family = "plain";
  model.format = "compressed_tensors";
  model.layers = {{"a.up_proj", model::Role::kMlp, 12, 64, nullptr},
                  {"a.down_proj", model::Role::kMlp, 64, 12, nullptr}};
  EXPECT_EQ(parallel_degrees(engine_named("vllm"), model).degrees,
            (Degrees{1, 2, 3, 4, 6, 12}));
}

TEST(ParallelDegrees, WholeExpertsAreDealtOutEvenly) {
  ModelFacts model;
  EXPECT_TRUE(expert_degrees(model).empty());
  model.experts = 12;
  EXPECT_EQ(expert_degrees(model), (Degrees{1, 2, 3, 4, 6, 12}));
}

}  // namespace
}  // namespace nibble::quant
