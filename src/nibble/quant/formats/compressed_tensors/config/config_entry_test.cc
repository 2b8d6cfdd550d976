// The quantization_config that is written, and that it reads back.
#include "nibble/quant/formats/compressed_tensors/config/config_entry.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/quant/formats/compressed_tensors/config/declaration.h"
#include "nibble/quant/formats/compressed_tensors/config/target_patterns.h"
#include "nibble/quant/formats/compressed_tensors/made_checkpoint_for_tests.h"

namespace nibble::quant::compressed_tensors {
namespace {

using nlohmann::json;
using testing::ElementsAre;

LayerSpec int4() {
  return {made_number(4, false, Grain::kGroup, 128), std::nullopt};
}

LayerSpec fp8() {
  return {made_number(8, true, Grain::kChannel),
          made_number(8, true, Grain::kToken)};
}

TEST(ConfigEntry, OneSchemeIsWrittenForTheClassLinear) {
  const std::vector<LayerDecision> layers = {
      {"model.layers.0.mlp.up_proj", 256, 256, int4()},
      {"model.layers.0.mlp.gate", 8, 256, std::nullopt},
      {"lm_head", 2048, 256, std::nullopt}};
  const json entry = make_config_entry(layers);
  // Spelled out: the keys that every reader since 0.9 knows, and no other.
  EXPECT_EQ(entry, json::parse(R"({
    "config_groups": {"group_0": {
      "targets": ["Linear"],
      "weights": {"actorder": null, "block_structure": null,
        "dynamic": false, "group_size": 128, "num_bits": 4,
        "observer": "minmax", "observer_kwargs": {}, "strategy": "group",
        "symmetric": true, "type": "int"},
      "input_activations": null, "output_activations": null}},
    "format": "pack-quantized", "global_compression_ratio": null,
    "ignore": ["model.layers.0.mlp.gate", "lm_head"],
    "kv_cache_scheme": null, "quant_method": "compressed-tensors",
    "quantization_status": "compressed", "sparsity_config": {},
    "transform_config": {}, "version": "0.14.0"})"));
}

TEST(ConfigEntry, AnEmbeddingTableIsATargetByItsName) {
  const LayerDecision table = {
      "model.embed_tokens", 2048, 256, int4(), /*embedding=*/true};
  const LayerDecision linear = {"model.layers.0.mlp.up_proj", 256, 256, int4()};
  const auto targets = [](const std::vector<LayerDecision>& layers, int group) {
    return make_config_entry(
               layers)["config_groups"]["group_" + std::to_string(group)]
                      ["targets"]
                          .get<std::vector<std::string>>();
  };
  EXPECT_THAT(targets({table, linear}, 0),
              ElementsAre("Linear", "model.embed_tokens"));
  LayerDecision other = table;
  other.spec = LayerSpec{made_number(8, false, Grain::kChannel), std::nullopt};
  EXPECT_THAT(targets({linear, other}, 0), ElementsAre("Linear"));
  EXPECT_THAT(targets({linear, other}, 1), ElementsAre("model.embed_tokens"));
  EXPECT_THAT(targets({other}, 0), ElementsAre("model.embed_tokens"));
}

TEST(ConfigEntry, BlocksAndInputsAreWrittenInTheListForm) {
  const LayerSpec block = {made_number(8, true, Grain::kBlock),
                           made_number(8, true, Grain::kGroup, 128)};
  const json entry =
      make_config_entry(std::vector<LayerDecision>{{"a.x", 256, 256, block}});
  const json& group = entry["config_groups"]["group_0"];
  EXPECT_EQ(group["weights"]["block_structure"], (json{128, 128}));
  EXPECT_EQ(group["weights"]["strategy"], "block");
  EXPECT_EQ(group["input_activations"]["strategy"], "group");
  EXPECT_EQ(group["input_activations"]["group_size"], 128);
  EXPECT_EQ(group["input_activations"]["dynamic"], true);
  EXPECT_EQ(group["input_activations"]["observer"], nullptr);
  EXPECT_EQ(entry["format"], "float-quantized");
}

TEST(ConfigEntry, ATiedHeadIsIgnoredThoughItHasNoTensor) {
  const auto ignore = [](const char* module) {
    return make_config_entry(
        std::vector<LayerDecision>{{module, 256, 256, int4()}})["ignore"];
  };
  EXPECT_EQ(ignore("model.layers.0.mlp.up_proj"), json{"lm_head"});
  EXPECT_EQ(ignore("language_model.model.layers.0.mlp.up_proj"),
            json{"language_model.lm_head"});
}

TEST(ConfigEntry, ScaleTypesDoNotMakeASchemeAnother) {
  LayerSpec half = int4();
  half.weight.scale_dtype = DType::kF16;
  const json entry = make_config_entry(std::vector<LayerDecision>{
      {"a.x", 256, 256, int4()}, {"a.y", 256, 256, half}});
  EXPECT_EQ(entry["config_groups"].size(), 1U);
}

TEST(ConfigEntry, NothingQuantizedCannotBeDeclared) {
  expect_error(ErrorCode::kInvalidArgument, "no quantized layer", [] {
    static_cast<void>(make_config_entry(
        std::vector<LayerDecision>{{"lm_head", 2048, 256, std::nullopt}}));
  });
}

// A model of three schemes: the config must read back to the same choice for
// each of its modules.
TEST(ConfigEntry, SeveralSchemesReadBackToTheSameModules) {
  std::vector<LayerDecision> layers;
  for (int layer = 0; layer < 12; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      layers.push_back({prefix + "self_attn." + name, 256, 256, fp8()});
    }
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
      // The first and last layer are treated apart.
      LayerSpec spec = int4();
      if (layer == 0 || layer == 11) {
        spec.weight = made_number(8, false, Grain::kChannel);
      }
      layers.push_back({prefix + "mlp." + name, 256, 256, spec});
    }
    layers.push_back({prefix + "mlp.gate", 8, 256, std::nullopt});
  }
  const json entry = make_config_entry(layers);
  EXPECT_EQ(entry["format"], "mixed-precision");
  const Declaration declaration = parse_declaration(entry);
  ASSERT_EQ(declaration.groups.size(), 3U);
  const Targets targets(declaration);
  for (const LayerDecision& layer : layers) {
    EXPECT_EQ(targets.ignored(layer.module), !layer.spec.has_value());
    if (layer.spec) {
      EXPECT_EQ(targets.find(layer.module)->group->spec, layer.spec)
          << layer.module;
    }
  }
}

std::vector<std::vector<std::string>> patterns(
    const std::vector<std::vector<std::string_view>>& groups) {
  return target_patterns(groups);
}

TEST(TargetPatterns, KindsAreToldApartByTheirNames) {
  const auto targets = patterns({{"model.layers.0.mlp.gate_proj",
                                  "model.layers.0.mlp.up_proj",
                                  "model.layers.1.mlp.gate_proj",
                                  "model.layers.1.mlp.up_proj"},
                                 {"model.layers.0.mlp.down_proj",
                                  "model.layers.1.mlp.experts.3.down_proj"}});
  EXPECT_THAT(targets[0],
              ElementsAre(R"(re:.*layers\.[0-9]+\.mlp\.(gate_proj|up_proj)$)"));
  EXPECT_THAT(targets[1],
              ElementsAre(R"(re:.*layers\.[0-9]+\.mlp\.down_proj$)",
                          R"(re:.*layers\.[0-9]+\.mlp\.experts\.[0-9]+\.)"
                          R"(down_proj$)"));
}

TEST(TargetPatterns, LayersOfOneKindAreToldApartByNumber) {
  const auto targets = patterns({{"m.layers.0.mlp.up_proj",
                                  "m.layers.0.mlp.gate_proj",
                                  "m.layers.10.mlp.up_proj",
                                  "m.layers.10.mlp.gate_proj"},
                                 {"m.layers.1.mlp.up_proj"}});
  EXPECT_THAT(targets[0],
              ElementsAre(R"(re:.*layers\.(0|10)\.mlp\.(gate_proj|up_proj)$)"));
  EXPECT_THAT(targets[1], ElementsAre(R"(re:.*layers\.1\.mlp\.up_proj$)"));
}

TEST(TargetPatterns, WhatPatternsCannotTellApartIsNamed) {
  const auto targets = patterns({{"a.layers.0.x"}, {"b.layers.0.x"}});
  EXPECT_THAT(targets[0], ElementsAre("a.layers.0.x"));
  EXPECT_THAT(targets[1], ElementsAre("b.layers.0.x"));
}

TEST(TargetPatterns, OtherCharactersAreTakenLiterally) {
  const auto targets = patterns({{"a+b.x"}, {"aab.x"}});
  EXPECT_THAT(targets[0], ElementsAre(R"(re:a\+b\.x$)"));
}

}  // namespace
}  // namespace nibble::quant::compressed_tensors
