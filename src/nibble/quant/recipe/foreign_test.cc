// Recipes of other programs, and what they come down to here.
#include "nibble/quant/recipe/foreign.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/quant/recipe/recipe.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

std::string meaning(const Rule& rule) {
  return rule.spec ? describe(*rule.spec) : "keep";
}

std::string only_rule(const std::string& text) {
  const Recipe recipe = load_recipe(text);
  EXPECT_EQ(recipe.rules.size(), 1U);
  EXPECT_EQ(recipe.rules.at(0).match, std::vector<std::string>{"*"});
  return meaning(recipe.rules.at(0));
}

// What their option for all linears means, which includes the output head.
std::string head_and_others(const std::string& text) {
  const Recipe recipe = load_recipe(text);
  EXPECT_EQ(recipe.rules.size(), 2U);
  const Rule& head = recipe.rules.at(0);
  EXPECT_EQ(head.match, (std::vector<std::string>{"lm_head", "*.lm_head"}));
  EXPECT_TRUE(head.force);
  EXPECT_TRUE(head.optional);
  EXPECT_EQ(head.spec, recipe.rules.at(1).spec);
  EXPECT_EQ(recipe.rules.at(1).match, std::vector<std::string>{"*"});
  return meaning(recipe.rules.at(1));
}

TEST(ForeignRecipe, TorchchatsLinearOptionsAreRules) {
  EXPECT_EQ(head_and_others(R"({"linear:int4": {"groupsize": 128}})"),
            "int4 group 128 asymmetric");
  EXPECT_EQ(head_and_others(R"({"linear:int4": {}})"),
            "int4 group 256 asymmetric");
  EXPECT_EQ(head_and_others(R"({"linear:int8": {"groupsize": 0}})"),
            "int8 channel");
  EXPECT_EQ(only_rule(R"({"linear:int8": {"bitwidth": 4, "groupsize": 32,
                                          "node_type": "!output"}})"),
            "int4 group 32");
  EXPECT_EQ(head_and_others(R"({"linear:a8w4dq": {"groupsize": 64}})"),
            "int4 group 64, int8 token inputs");
  EXPECT_EQ(
      head_and_others(R"({"linear:a8wxdq": {"bitwidth": 8, "groupsize": -1,
                                            "has_weight_zeros": true}})"),
      "int8 channel asymmetric, int8 token inputs");
}

// The recipe that torchchat ships for telephones, with its precision.
TEST(ForeignRecipe, TorchchatsEmbeddingIsARuleForTheTable) {
  const Recipe recipe = load_recipe(
      R"({"embedding": {"bitwidth": 4, "groupsize": 32},
          "precision": {"dtype": "fast16"}, "executor": {"accelerator": "cpu"},
          "linear:a8w4dq": {"groupsize": 256}})");
  EXPECT_TRUE(recipe.defaults);
  EXPECT_EQ(recipe.dtype, DType::kBF16);
  ASSERT_EQ(recipe.rules.size(), 3U);
  EXPECT_EQ(recipe.rules[0].match, std::vector<std::string>{"*.embed_tokens"});
  EXPECT_EQ(meaning(recipe.rules[0]), "int4 group 32");
  EXPECT_TRUE(recipe.rules[0].force);
  EXPECT_FALSE(recipe.rules[0].optional);
  EXPECT_EQ(meaning(recipe.rules[2]), "int4 group 256, int8 token inputs");
}

TEST(ForeignRecipe, AnEmbeddingAloneIsARecipe) {
  EXPECT_EQ(meaning(load_recipe(R"({"embedding": {}})").rules.at(0)),
            "int8 channel");
  EXPECT_EQ(meaning(load_recipe(R"({"embedding:wx": {"bitwidth": 4,
                                    "groupsize": 64}})")
                        .rules.at(0)),
            "int4 group 64 asymmetric");
}

TEST(ForeignRecipe, CompressedTensorsGroupsAreRulesInTheirPrecedence) {
  const Recipe recipe = load_recipe(R"({"quantization_config": {
    "quant_method": "compressed-tensors",
    "config_groups": {
      "a": {"targets": ["Linear"],
            "weights": {"num_bits": 4, "group_size": 128}},
      "b": {"targets": ["re:.*down_proj"],
            "weights": {"num_bits": 8, "type": "float",
                        "strategy": "channel"},
            "input_activations": {"dynamic": true, "strategy": "token"}},
      "c": {"targets": ["model.layers.0.mlp.up_proj"],
            "weights": {"strategy": "channel", "symmetric": false}}},
    "ignore": ["lm_head", "re:.*router$"]}})");
  EXPECT_FALSE(recipe.defaults);
  ASSERT_EQ(recipe.rules.size(), 4U);
  EXPECT_EQ(recipe.rules[0].match,
            (std::vector<std::string>{"lm_head", "re:(?:.*router$).*"}));
  EXPECT_TRUE(recipe.rules[0].optional);
  EXPECT_EQ(meaning(recipe.rules[0]), "keep");
  EXPECT_EQ(meaning(recipe.rules[1]), "int8 channel asymmetric");
  EXPECT_EQ(meaning(recipe.rules[2]), "fp8 channel, fp8 token inputs");
  EXPECT_EQ(meaning(recipe.rules[3]), "int4 group 128");
  EXPECT_EQ(recipe.rules[3].match, std::vector<std::string>{"*"});
  // Theirs fit from the start of a name.
  EXPECT_TRUE(pattern_fits(recipe.rules[2].match[0], "a.down_proj_extra"));
  EXPECT_TRUE(pattern_fits(recipe.rules[0].match[1], "a.router"));
  EXPECT_FALSE(pattern_fits(recipe.rules[0].match[1], "a.router_x"));
}

TEST(ForeignRecipe, PresetsAndBlocksAreKnown) {
  const auto preset = [](const std::string& name) {
    return only_rule("{\"config_groups\": {\"" + name + "\": [\"Linear\"]}}");
  };
  EXPECT_EQ(preset("W4A16"), "int4 group 128");
  EXPECT_EQ(preset("W4A16_ASYM"), "int4 group 128 asymmetric");
  EXPECT_EQ(preset("W8A8"), "int8 channel, int8 token inputs");
  EXPECT_EQ(preset("FP8"), "fp8 tensor, fp8 tensor inputs static");
  EXPECT_EQ(preset("FP8_BLOCK"), "fp8 block 128x128, fp8 group 128 inputs");
  EXPECT_EQ(only_rule(R"({"config_groups": {"g": {"targets": ["Linear"],
      "weights": {"type": "float", "strategy": "block",
                  "block_structure": "128x128"}}}})"),
            "fp8 block 128x128");
}

TEST(ForeignRecipe, WhatHasNoEquivalentIsRefused) {
  const auto group = [](const std::string& weights) {
    return "{\"config_groups\": {\"g\": {\"targets\": [\"Linear\"], "
           "\"weights\": " +
           weights + "}}}";
  };

  const struct {
    std::string text;
    std::string message;
  } kCases[] = {
      {R"({"linear:int4": {"groupsize": 100}})", "did you mean 128?"},
      {R"({"linear:int4": {"grupsize": 64}})", "did you mean groupsize?"},
      {R"({"linear:int4": {"groupsize": "64"}})", "expected an integer"},
      {R"({"linear:int4": 64})", "linear:int4: found 64"},
      {R"({"linear:int4": {}, "linear:itn8": {}})",
       "did you mean linear:int8?"},
      {R"({"linear:int4": {}, "linear:int8": {}})", "found 2 keys of linear"},
      {R"({"precision": {"dtype": "fp16"}})", "quantizes nothing"},
      {R"({"precision": {"dtype": "fp8"}, "embedding": {}})",
       "precision.dtype: found \"fp8\""},
      {R"({"precision": {"type": "fp16"}, "embedding": {}})",
       "did you mean dtype?"},
      {R"({"executor": {"accelerator": "tpu"}, "embedding": {}})",
       "accelerator: found \"tpu\""},
      {R"({"executor": {"accelerator": "mps"}, "embedding": {}})",
       "which nothing here runs on"},
      {R"({"embedding": {"bitwidth": 2}})", "scheme: found \"int2\""},
      {R"({"embedding": {"groupsize": 24}})", "did you mean 32?"},
      {R"({"embedding": {}, "embedding:wx": {"bitwidth": 4, "groupsize": 32}})",
       "found 2 keys of embedding tables"},
      {R"({"embedding:wx": {"bitwidth": 4, "groupsize": 32,
                            "has_weight_zeros": 1}})",
       "expected true or false"},
      {R"({"linear:afpwx": {"bitwidth": 4}})", "without an equivalent"},
      {R"({"linear:a8wxdq": {"bitwidth": 8, "groupsize": 64}})",
       "has_weight_zeros"},
      {R"({"linear:a8wxdq": {"groupsize": 64, "has_weight_zeros": false}})",
       "found no bitwidth"},
      {R"({"linear:a8wxdq": {"bitwidth": 3, "groupsize": 64,
                             "has_weight_zeros": false}})",
       "scheme: found \"int3\""},
      {R"({"linear:int8": {"node_type": "output"}})", "node_type"},
      {group(R"({"num_bits": 3, "group_size": 128})"), "found \"int3\""},
      {group(R"({"num_bits": 4, "type": "float"})"), "found \"fp4\""},
      {group(R"({"strategy": "tensor_group"})"), "tensor_group"},
      {group("7"), "weights: found 7"},
      {R"({"config_groups": 7})", "config_groups: found 7"},
      {R"({"config_groups": {"g": 7}})", "config_groups.g: found 7"},
      {R"({"config_groups": {"W3A16": ["Linear"]}})", "no preset"},
      {R"({"config_groups": {"W4A16": []}})", "at least one target"},
      {R"({"config_groups": {"W4A16": [7]}})", "expected a string"},
      {R"({"config_groups": {}})", "rules: found []"},
      {R"({"config_groups": {}, "kv_cache_scheme": {"num_bits": 8}})",
       "kv_cache_scheme: found"},
      {R"({"config_groups": {"g": {"output_activations": {}}}})",
       "quantized outputs"},
  };

  for (const auto& each : kCases) {
    SCOPED_TRACE(each.text);
    expect_error(ErrorCode::kBadRecipe, each.message, [&] {
      static_cast<void>(load_recipe(each.text));
    });
  }
}

TEST(ForeignRecipe, OtherFormsAreLeftAlone) {
  EXPECT_EQ(translate_foreign_recipe(json::parse(R"({"rules": []})")),
            std::nullopt);
  EXPECT_EQ(translate_foreign_recipe(json::parse(R"({"a": 1})")), std::nullopt);
  EXPECT_EQ(translate_foreign_recipe(json::parse("[1]")), std::nullopt);
}

}  // namespace
}  // namespace nibble::quant
