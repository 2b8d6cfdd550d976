#include "nibble/model/family.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"

namespace nibble::model {
namespace {

using nlohmann::json;

json config_of(const char* architecture) {
  return {{"architectures", {architecture}},
          {"hidden_size", 8},
          {"intermediate_size", 12},
          {"num_local_experts", 3}};
}

TensorPlace place(const char* architecture,
                  std::string_view name,
                  const Shape& shape) {
  const json config = config_of(architecture);
  return place_of(family_of(config), config, name, shape);
}

TEST(Family, IsFoundByArchitecture) {
  EXPECT_EQ(family_of(config_of("LlamaForCausalLM")).name, "llama");
  EXPECT_EQ(family_of(config_of("Llama4ForCausalLM")).name, "llama4");
  EXPECT_EQ(family_of(config_of("Llama4ForConditionalGeneration")).name,
            "llama4");
  EXPECT_EQ(family_of(config_of("MistralForCausalLM")).name, "mistral");
  EXPECT_EQ(family_of(config_of("SomethingElse")).name, "plain");
  EXPECT_EQ(family_of(json::object()).name, "plain");
}

TEST(Family, OnlyWhatTheModelComputesIsRunnable) {
  for (const Family& family : families()) {
    EXPECT_EQ(family.runnable,
              family.name == "llama" || family.name == "llama4")
        << family.name;
  }
}

TEST(Family, Llama4AlsoKeepsRoutersAttentionAndVision) {
  const auto keeps = [](const char* architecture, Role role) {
    const auto kept = family_of(config_of(architecture)).keep_dense;
    return std::find(kept.begin(), kept.end(), role) != kept.end();
  };
  for (const Role role :
       {Role::kHead, Role::kEmbedding, Role::kNorm, Role::kBuffer}) {
    EXPECT_TRUE(keeps("LlamaForCausalLM", role)) << role_name(role);
    EXPECT_TRUE(keeps("Llama4ForCausalLM", role)) << role_name(role);
    EXPECT_TRUE(keeps("Unknown", role)) << role_name(role);
  }
  for (const Role role : {Role::kRouter, Role::kAttention, Role::kVision}) {
    EXPECT_FALSE(keeps("LlamaForCausalLM", role)) << role_name(role);
    EXPECT_TRUE(keeps("Llama4ForCausalLM", role)) << role_name(role);
  }
}

struct Expected {
  const char* name;
  Shape shape;
  Role role;
  int layer;
  const char* module;
  const char* part;
  bool linear;
};

void expect_places(const char* architecture,
                   const std::vector<Expected>& cases) {
  for (const Expected& c : cases) {
    SCOPED_TRACE(c.name);
    const TensorPlace found = place(architecture, c.name, c.shape);
    EXPECT_EQ(role_name(found.role), role_name(c.role));
    EXPECT_EQ(found.layer, c.layer);
    EXPECT_EQ(found.module, c.module);
    EXPECT_EQ(found.part, c.part);
    EXPECT_EQ(found.linear, c.linear);
    EXPECT_TRUE(found.stacked.empty());
  }
}

TEST(Place, OfLlama) {
  expect_places(
      "LlamaForCausalLM",
      {{"model.embed_tokens.weight",
        {100, 8},
        Role::kEmbedding,
        -1,
        "model.embed_tokens",
        "weight",
        false},
       {"lm_head.weight", {100, 8}, Role::kHead, -1, "lm_head", "weight", true},
       {"model.norm.weight",
        {8},
        Role::kNorm,
        -1,
        "model.norm",
        "weight",
        false},
       {"model.layers.12.self_attn.q_proj.weight",
        {8, 8},
        Role::kAttention,
        12,
        "model.layers.12.self_attn.q_proj",
        "weight",
        true},
       {"model.layers.0.self_attn.o_proj.bias",
        {8},
        Role::kAttention,
        0,
        "model.layers.0.self_attn.o_proj",
        "bias",
        false},
       {"model.layers.0.mlp.down_proj.weight",
        {8, 12},
        Role::kMlp,
        0,
        "model.layers.0.mlp.down_proj",
        "weight",
        true},
       {"model.layers.0.mlp.down_proj.weight_scale",
        {8, 1},
        Role::kMlp,
        0,
        "model.layers.0.mlp.down_proj",
        "weight_scale",
        false},
       {"model.layers.3.post_attention_layernorm.weight",
        {8},
        Role::kNorm,
        3,
        "model.layers.3.post_attention_layernorm",
        "weight",
        false},
       {"model.layers.3.self_attn.rotary_emb.inv_freq",
        {4},
        Role::kBuffer,
        3,
        "model.layers.3.self_attn.rotary_emb",
        "inv_freq",
        false},
       {"model.layers.3.surprise.weight",
        {8, 8},
        Role::kOther,
        3,
        "model.layers.3.surprise",
        "weight",
        false},
       {"model.layers.99999999999.mlp.up_proj.weight",
        {12, 8},
        Role::kMlp,
        -1,
        "model.layers.99999999999.mlp.up_proj",
        "weight",
        true},
       {"nameless", {1}, Role::kOther, -1, "nameless", "", false}});
}

TEST(Place, OfLlama4) {
  expect_places(
      "Llama4ForConditionalGeneration",
      {{"language_model.lm_head.weight",
        {100, 8},
        Role::kHead,
        -1,
        "language_model.lm_head",
        "weight",
        true},
       {"language_model.model.layers.1.feed_forward.router.weight",
        {3, 8},
        Role::kRouter,
        1,
        "language_model.model.layers.1.feed_forward.router",
        "weight",
        true},
       {"language_model.model.layers.1.feed_forward.shared_expert.up_proj."
        "weight",
        {12, 8},
        Role::kSharedExpert,
        1,
        "language_model.model.layers.1.feed_forward.shared_expert.up_proj",
        "weight",
        true},
       {"language_model.model.layers.0.feed_forward.gate_proj.weight",
        {24, 8},
        Role::kMlp,
        0,
        "language_model.model.layers.0.feed_forward.gate_proj",
        "weight",
        true},
       // One matrix an expert, as rewritten checkpoints have them.
       {"language_model.model.layers.1.feed_forward.experts.2.gate_proj.weight",
        {12, 8},
        Role::kExpert,
        1,
        "language_model.model.layers.1.feed_forward.experts.2.gate_proj",
        "weight",
        true},
       {"vision_model.model.layers.0.self_attn.q_proj.weight",
        {8, 8},
        Role::kVision,
        -1,
        "vision_model.model.layers.0.self_attn.q_proj",
        "weight",
        false},
       {"multi_modal_projector.linear_1.weight",
        {8, 8},
        Role::kVision,
        -1,
        "multi_modal_projector.linear_1",
        "weight",
        false}});
}

TEST(Place, StackedExpertsAreCutGateFirst) {
  const TensorPlace found =
      place("Llama4ForCausalLM",
            "model.layers.5.feed_forward.experts.gate_up_proj",
            {3, 8, 24});
  EXPECT_EQ(found.role, Role::kExpert);
  EXPECT_EQ(found.layer, 5);
  EXPECT_EQ(found.part, "");
  EXPECT_TRUE(found.linear);
  EXPECT_EQ(found.stack_module, "model.layers.5.feed_forward.experts");
  ASSERT_EQ(found.stacked.size(), 2U);
  EXPECT_EQ(found.stacked[0].projection, "gate_proj");
  EXPECT_EQ(found.stacked[0].first_column, 0);
  EXPECT_EQ(found.stacked[0].columns, 12);
  EXPECT_EQ(found.stacked[1].projection, "up_proj");
  EXPECT_EQ(found.stacked[1].first_column, 12);
  EXPECT_EQ(found.stacked[1].columns, 12);

  const TensorPlace down =
      place("Llama4ForCausalLM",
            "model.layers.5.feed_forward.experts.down_proj",
            {3, 12, 8});
  ASSERT_EQ(down.stacked.size(), 1U);
  EXPECT_EQ(down.stacked[0].projection, "down_proj");
  EXPECT_EQ(down.stacked[0].columns, 8);
}

TEST(Place, RefusesStackedExpertsOfAnotherShape) {
  const char* name = "model.layers.5.feed_forward.experts.gate_up_proj";
  for (const Shape& shape : {Shape{3, 24, 8},  // transposed
                             Shape{2, 8, 24},  // an expert is missing
                             Shape{3, 8, 12},  // half
                             Shape{24, 24}}) {
    expect_error(ErrorCode::kCorruptData,
                 "expected (3, 8, 24) (num_local_experts, hidden_size, 2 x "
                 "intermediate_size)",
                 [&] { (void)place("Llama4ForCausalLM", name, shape); });
  }
}

TEST(Place, OfAnUnknownFamilyGoesByHabitsOfNaming) {
  expect_places(
      "GPT2LMHeadModel",
      {{"transformer.wte.weight",
        {100, 8},
        Role::kEmbedding,
        -1,
        "transformer.wte",
        "weight",
        false},
       {"transformer.h.2.ln_1.weight",
        {8},
        Role::kNorm,
        2,
        "transformer.h.2.ln_1",
        "weight",
        false},
       {"transformer.h.2.attn.c_proj.weight",
        {8, 8},
        Role::kAttention,
        2,
        "transformer.h.2.attn.c_proj",
        "weight",
        true},
       {"model.layers.2.block_sparse_moe.gate.weight",
        {3, 8},
        Role::kRouter,
        2,
        "model.layers.2.block_sparse_moe.gate",
        "weight",
        true},
       {"model.layers.2.block_sparse_moe.experts.7.w1.weight",
        {12, 8},
        Role::kExpert,
        2,
        "model.layers.2.block_sparse_moe.experts.7.w1",
        "weight",
        true},
       {"lm_head.weight", {100, 8}, Role::kHead, -1, "lm_head", "weight", true},
       {"model.layers.2.something.weight",
        {8, 8},
        Role::kOther,
        2,
        "model.layers.2.something",
        "weight",
        true},
       {"model.layers.2.attention.output.weight",
        {8, 8},
        Role::kAttention,
        2,
        "model.layers.2.attention.output",
        "weight",
        true},
       {"model.layers.2.conv.weight",
        {8, 1, 4},
        Role::kOther,
        2,
        "model.layers.2.conv",
        "weight",
        false}});
}

}  // namespace
}  // namespace nibble::model
