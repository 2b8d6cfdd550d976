#include "nibble/model/config.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"

namespace nibble::model {
namespace {

using nlohmann::json;

json llama(const char* extra = "{}") {
  json config = json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "bos_token_id": 7, "eos_token_id": [8, 9]})");
  config.update(json::parse(extra));
  return config;
}

json llama4(const char* extra = "{}") {
  json config = json::parse(R"({
    "architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text",
    "hidden_size": 64, "intermediate_size": 32, "intermediate_size_mlp": 96,
    "num_hidden_layers": 8, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
    "num_local_experts": 4, "attention_chunk_size": 16})");
  config.update(json::parse(extra));
  return config;
}

std::vector<int> layers_with(const ModelConfig& config,
                             bool LayerConfig::*flag) {
  std::vector<int> layers;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].*flag) {
      layers.push_back(static_cast<int>(i));
    }
  }
  return layers;
}

// ---- Llama ------------------------------------------------------------------

TEST(Config, ReadsLlama) {
  const ModelConfig config = parse_config(llama());
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.name_prefix, "");
  EXPECT_EQ(config.mlp_module, "mlp");
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.vocabulary, 100);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.max_positions, 128);
  EXPECT_FLOAT_EQ(config.rms_epsilon, 1e-5F);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_EQ(config.rope_scaling, RopeScaling::kNone);
  EXPECT_FALSE(config.rope_interleaved);
  EXPECT_FALSE(config.tied_head);
  EXPECT_EQ(config.experts, 0);
  ASSERT_EQ(config.layers.size(), 3U);
  for (const LayerConfig& layer : config.layers) {
    EXPECT_TRUE(layer.rope);
    EXPECT_EQ(layer.attention_chunk, 0);
    EXPECT_EQ(layer.intermediate, 160);
    EXPECT_FALSE(layer.experts || layer.qk_norm || layer.temperature_tuning);
  }
  EXPECT_EQ(config.bos_token, 7);
  EXPECT_EQ(config.eos_tokens, (std::vector<std::int32_t>{8, 9}));
}

TEST(Config, AbsentKeysOfLlamaTakeTheDefaultsOfItsClass) {
  const ModelConfig config =
      parse_config(json::parse(R"({"architectures": ["LlamaForCausalLM"]})"));
  EXPECT_EQ(config.vocabulary, 32000);
  EXPECT_EQ(config.hidden, 4096);
  EXPECT_EQ(config.heads, 32);
  EXPECT_EQ(config.kv_heads, 32);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_FLOAT_EQ(config.rms_epsilon, 1e-6F);
  ASSERT_EQ(config.layers.size(), 32U);
  EXPECT_EQ(config.layers[0].intermediate, 11008);
  EXPECT_EQ(config.bos_token, 1);
  EXPECT_EQ(config.eos_tokens, (std::vector<std::int32_t>{2}));
}

TEST(Config, ANullIsAsGoodAsAbsent) {
  const ModelConfig config = parse_config(llama(R"({
    "num_key_value_heads": null, "head_dim": null, "rope_scaling": null,
    "bos_token_id": null, "eos_token_id": null, "hidden_act": null})"));
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_FALSE(config.bos_token.has_value());
  EXPECT_TRUE(config.eos_tokens.empty());
}

TEST(Config, ModelTypeStandsInForArchitectures) {
  json config = llama();
  config.erase("architectures");
  EXPECT_EQ(parse_config(config).architecture, "LlamaForCausalLM");
}

TEST(Config, HeadDimMayDifferFromHiddenOverHeads) {
  EXPECT_EQ(parse_config(llama(R"({"head_dim": 40})")).head_dim, 40);
}

TEST(Config, BiasesAndTiedHeadAreKept) {
  const ModelConfig config = parse_config(llama(
      R"({"attention_bias": true, "mlp_bias": true,
          "tie_word_embeddings": true})"));
  EXPECT_TRUE(config.attention_bias);
  EXPECT_TRUE(config.mlp_bias);
  EXPECT_TRUE(config.tied_head);
}

TEST(Config, OneEndTokenNeedsNoList) {
  EXPECT_EQ(parse_config(llama(R"({"eos_token_id": 5})")).eos_tokens,
            (std::vector<std::int32_t>{5}));
}

TEST(Config, WholeFloatsCountAsIntegers) {
  EXPECT_EQ(parse_config(llama(R"({"hidden_size": 128.0})")).hidden, 128);
}

TEST(Config, OldAndNewSpellingOfRopeMeanTheSame) {
  const char* spellings[] = {
      R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3",
          "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}})",
      R"({"rope_theta": 5e5, "rope_scaling": {"type": "llama3",
          "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
          "original_max_position_embeddings": 8192}})",
      R"({"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3",
          "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}})",
      // The new key wins where a file has both.
      R"({"rope_theta": 1.0, "rope_scaling": {"type": "linear", "factor": 2},
          "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3",
          "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}})"};
  for (const char* spelling : spellings) {
    SCOPED_TRACE(spelling);
    const ModelConfig config = parse_config(llama(spelling));
    EXPECT_EQ(config.rope_theta, 5e5);
    EXPECT_EQ(config.rope_scaling, RopeScaling::kLlama3);
    EXPECT_EQ(config.rope_factor, 8);
    EXPECT_EQ(config.rope_low_freq_factor, 1);
    EXPECT_EQ(config.rope_high_freq_factor, 4);
    EXPECT_EQ(config.rope_original_positions, 8192);
  }
}

TEST(Config, ReadsLinearScalingOfRope) {
  const ModelConfig config = parse_config(
      llama(R"({"rope_scaling": {"type": "linear", "factor": 2.5}})"));
  EXPECT_EQ(config.rope_scaling, RopeScaling::kLinear);
  EXPECT_EQ(config.rope_factor, 2.5);
}

// ---- Llama 4 ----------------------------------------------------------------

TEST(Config, AbsentKeysOfLlama4TakeTheDefaultsOfItsClass) {
  const ModelConfig config =
      parse_config(json::parse(R"({"architectures": ["Llama4ForCausalLM"]})"));
  EXPECT_EQ(config.vocabulary, 202048);
  EXPECT_EQ(config.hidden, 5120);
  EXPECT_EQ(config.heads, 40);
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_FLOAT_EQ(config.rms_epsilon, 1e-5F);
  EXPECT_EQ(config.rope_theta, 500000);
  EXPECT_TRUE(config.rope_interleaved);
  EXPECT_EQ(config.mlp_module, "feed_forward");
  EXPECT_EQ(config.experts, 16);
  EXPECT_EQ(config.experts_per_token, 1);
  EXPECT_EQ(config.expert_intermediate, 8192);
  EXPECT_EQ(config.attention_scale, 0.1);
  EXPECT_EQ(config.attention_floor_scale, 8192);
  ASSERT_EQ(config.layers.size(), 48U);
  for (std::size_t i = 0; i < 48; ++i) {
    const bool rope = i % 4 != 3;
    const LayerConfig& layer = config.layers[i];
    EXPECT_EQ(layer.rope, rope);
    EXPECT_EQ(layer.qk_norm, rope);
    EXPECT_EQ(layer.temperature_tuning, !rope);
    EXPECT_EQ(layer.attention_chunk, rope ? 8192 : 0);
    EXPECT_TRUE(layer.experts);
  }
}

TEST(Config, NoRopeLayersNamesTheLayersWithRope) {
  EXPECT_EQ(layers_with(parse_config(
                            llama4(R"({"no_rope_layers": [1,0,0,1,1,1,1,0]})")),
                        &LayerConfig::rope),
            (std::vector<int>{0, 3, 4, 5, 6}));
  // Empty means the interval, as absent does.
  EXPECT_EQ(layers_with(parse_config(llama4(R"({"no_rope_layers": [],
                            "no_rope_layer_interval": 2})")),
                        &LayerConfig::rope),
            (std::vector<int>{0, 2, 4, 6}));
}

TEST(Config, ExpertLayersComeFromTheListOrElseTheStep) {
  const auto experts = [](const char* extra) {
    return layers_with(parse_config(llama4(extra)), &LayerConfig::experts);
  };
  EXPECT_EQ(experts(R"({"interleave_moe_layer_step": 2})"),
            (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(experts(R"({"interleave_moe_layer_step": 3,
                        "moe_layers": null})"),
            (std::vector<int>{2, 5}));
  EXPECT_EQ(experts(R"({"interleave_moe_layer_step": 2,
                        "moe_layers": [0, 6]})"),
            (std::vector<int>{0, 6}));
  EXPECT_TRUE(experts(R"({"moe_layers": []})").empty());
  const ModelConfig config =
      parse_config(llama4(R"({"interleave_moe_layer_step": 2})"));
  EXPECT_EQ(config.layers[0].intermediate, 96);
  EXPECT_EQ(config.layers[1].intermediate, 0);
  EXPECT_EQ(config.expert_intermediate, 32);
}

TEST(Config, LayerTypesDecideWhichLayersAttendInChunks) {
  const ModelConfig config = parse_config(llama4(R"({"layer_types": [
      "full_attention", "chunked_attention", "full_attention",
      "chunked_attention", "full_attention", "full_attention",
      "full_attention", "full_attention"]})"));
  EXPECT_EQ(config.layers[0].attention_chunk, 0);
  EXPECT_EQ(config.layers[1].attention_chunk, 16);
  EXPECT_EQ(config.layers[3].attention_chunk, 16);
  EXPECT_EQ(config.layers[4].attention_chunk, 0);
}

TEST(Config, AnExplicitNullChunkMeansNoChunks) {
  EXPECT_EQ(parse_config(llama4(R"({"attention_chunk_size": null})"))
                .layers[0]
                .attention_chunk,
            0);
}

TEST(Config, TemperatureTuningIsABooleanOrANumber) {
  const auto tuned = [](const char* extra) {
    return !layers_with(parse_config(llama4(extra)),
                        &LayerConfig::temperature_tuning)
                .empty();
  };
  EXPECT_TRUE(tuned(R"({"attn_temperature_tuning": true})"));
  EXPECT_TRUE(tuned(R"({"attn_temperature_tuning": 4})"));
  EXPECT_FALSE(tuned(R"({"attn_temperature_tuning": false})"));
  EXPECT_FALSE(tuned(R"({"attn_temperature_tuning": 0})"));
}

TEST(Config, QkNormIsForLayersWithRope) {
  EXPECT_EQ(layers_with(parse_config(llama4()), &LayerConfig::qk_norm),
            (std::vector<int>{0, 1, 2, 4, 5, 6}));
  EXPECT_TRUE(layers_with(parse_config(llama4(R"({"use_qk_norm": false})")),
                          &LayerConfig::qk_norm)
                  .empty());
}

TEST(Config, TheTextPartOfAMultimodalConfigIsTheModel) {
  json text = llama4();
  text.erase("architectures");
  const json config{{"architectures", {"Llama4ForConditionalGeneration"}},
                    {"model_type", "llama4"},
                    {"text_config", text},
                    {"vision_config", json::object()}};
  const ModelConfig parsed = parse_config(config);
  EXPECT_EQ(parsed.architecture, "Llama4ForConditionalGeneration");
  EXPECT_EQ(parsed.name_prefix, "language_model.");
  EXPECT_EQ(parsed.hidden, 64);
  EXPECT_EQ(parsed.layers.size(), 8U);
}

// ---- Refusals ---------------------------------------------------------------

struct Refusal {
  const char* change;
  ErrorCode code;
  const char* message;
};

TEST(Config, RefusesImpossibleValuesOfLlama) {
  const ErrorCode corrupt = ErrorCode::kCorruptData;
  const ErrorCode unsupported = ErrorCode::kUnsupported;
  const Refusal cases[] = {
      {R"({"hidden_size": -64})", corrupt, "hidden_size: found -64"},
      {R"({"hidden_size": 0})", corrupt, "hidden_size: found 0"},
      {R"({"hidden_size": "64"})", corrupt, "hidden_size: found \"64\""},
      {R"({"hidden_size": 64.5})", corrupt, "hidden_size: found 64.5"},
      {R"({"hidden_size": 18446744073709551615})", corrupt, "hidden_size"},
      {R"({"hidden_size": 1e300})", corrupt, "hidden_size: found 1e+300"},
      {R"({"num_hidden_layers": 1000000000})", corrupt, "num_hidden_layers"},
      {R"({"num_hidden_layers": 0})", corrupt, "num_hidden_layers: found 0"},
      {R"({"vocab_size": 99999999999})", corrupt, "vocab_size"},
      {R"({"num_key_value_heads": 3})",
       corrupt,
       "num_key_value_heads: found 3, expected a divisor of "
       "num_attention_heads, 4"},
      {R"({"num_attention_heads": 3, "num_key_value_heads": 3})",
       corrupt,
       "hidden_size: found 64, expected a multiple of num_attention_heads, 3"},
      {R"({"head_dim": 15})", corrupt, "head_dim: found 15, expected an even"},
      {R"({"head_dim": 100000})", corrupt, "head_dim: found 100000"},
      {R"({"rms_norm_eps": -1})", corrupt, "rms_norm_eps: found -1"},
      {R"({"rms_norm_eps": true})", corrupt, "rms_norm_eps: found true"},
      {R"({"max_position_embeddings": 1e12})",
       corrupt,
       "max_position_embeddings"},
      {R"({"tie_word_embeddings": 1})",
       corrupt,
       "tie_word_embeddings: found 1, expected true or false"},
      {R"({"eos_token_id": [1, -1]})", corrupt, "eos_token_id: found -1"},
      {R"({"eos_token_id": {}})", corrupt, "eos_token_id: found an object"},
      {R"({"bos_token_id": 4294967296})", corrupt, "bos_token_id"},
      {R"({"rope_theta": 0})", corrupt, "rope_theta: found 0"},
      {R"({"rope_scaling": 3})", corrupt, "rope_scaling: found 3"},
      {R"({"rope_scaling": {"type": "linear"}})",
       corrupt,
       "rope_scaling: factor: found nothing"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})",
       corrupt,
       "low_freq_factor: found nothing"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8,
           "low_freq_factor": 4, "high_freq_factor": 1,
           "original_max_position_embeddings": 8192}})",
       corrupt,
       "low_freq_factor: found 4"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4}})",
       unsupported,
       "rope_type: found 'yarn', expected default, linear or llama3"},
      {R"({"rope_scaling": {"type": "longrope"}})", unsupported, "'longrope'"},
      {R"({"rope_parameters": {"rope_type": "dynamic", "factor": 2}})",
       unsupported,
       "'dynamic'"},
      {R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})",
       unsupported,
       "rope_parameters: full_attention: found an object"},
      {R"({"hidden_act": "gelu"})",
       unsupported,
       "hidden_act: found 'gelu', expected silu"},
      {R"({"partial_rotary_factor": 0.5})",
       unsupported,
       "partial_rotary_factor: found 0.5"},
      {R"({"architectures": ["GPT2LMHeadModel"]})",
       unsupported,
       "found 'GPT2LMHeadModel', expected LlamaForCausalLM"},
      {R"({"architectures": [], "model_type": "bloom"})",
       unsupported,
       "found 'bloom'"},
      {R"({"architectures": "LlamaForCausalLM"})", corrupt, "architectures"},
      {R"({"architectures": [3]})", corrupt, "architectures"},
  };
  for (const Refusal& c : cases) {
    SCOPED_TRACE(c.change);
    expect_error(
        c.code, c.message, [&] { (void)parse_config(llama(c.change)); });
  }
}

TEST(Config, RefusesImpossibleValuesOfLlama4) {
  const ErrorCode corrupt = ErrorCode::kCorruptData;
  const Refusal cases[] = {
      {R"({"num_local_experts": 0})", corrupt, "num_local_experts: found 0"},
      {R"({"num_local_experts": 1000000})", corrupt, "num_local_experts"},
      {R"({"num_hidden_layers": 2048, "num_local_experts": 4096})",
       corrupt,
       "experts in all layers"},
      {R"({"num_experts_per_tok": 5})",
       corrupt,
       "num_experts_per_tok: found 5, expected an integer from 1 to 4"},
      {R"({"no_rope_layers": [1, 0]})",
       corrupt,
       "no_rope_layers: found [1,0], expected a list of 8"},
      {R"({"no_rope_layers": [1,1,1,1,1,1,1,2]})",
       corrupt,
       "no_rope_layers: found 2"},
      {R"({"no_rope_layer_interval": 0})", corrupt, "no_rope_layer_interval"},
      {R"({"interleave_moe_layer_step": 0})",
       corrupt,
       "interleave_moe_layer_step"},
      {R"({"moe_layers": [8]})", corrupt, "moe_layers: found 8"},
      {R"({"moe_layers": 3})", corrupt, "moe_layers: found 3"},
      {R"({"attention_chunk_size": -1})", corrupt, "attention_chunk_size"},
      {R"({"floor_scale": 0})", corrupt, "floor_scale: found 0"},
      {R"({"attn_temperature_tuning": "yes"})",
       corrupt,
       "attn_temperature_tuning"},
      {R"({"layer_types": ["full_attention"]})", corrupt, "layer_types"},
      {R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]})",
       ErrorCode::kUnsupported,
       "layer_types: found \"sliding_attention\""},
  };
  for (const Refusal& c : cases) {
    SCOPED_TRACE(c.change);
    expect_error(
        c.code, c.message, [&] { (void)parse_config(llama4(c.change)); });
  }
}

TEST(Config, RefusesAWrapperWithoutItsTextPart) {
  const json config{{"architectures", {"Llama4ForConditionalGeneration"}}};
  expect_error(ErrorCode::kCorruptData, "text_config: found nothing", [&] {
    (void)parse_config(config);
  });
  json wrong = config;
  wrong["text_config"] = "llama";
  expect_error(ErrorCode::kCorruptData, "text_config: found \"llama\"", [&] {
    (void)parse_config(wrong);
  });
}

TEST(Config, RefusesWhatIsNoObject) {
  expect_error(ErrorCode::kCorruptData, "expected a JSON object", [] {
    (void)parse_config(json::array());
  });
}

}  // namespace
}  // namespace nibble::model
