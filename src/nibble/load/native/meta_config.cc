#include "nibble/load/native/meta_config.h"

#include <string>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"

namespace nibble::load {
namespace {

using nlohmann::json;

// A positive integer of params.json; `fallback` when absent or null.
std::int64_t integer(const json& params,
                     const char* key,
                     std::int64_t fallback = 0) {
  const auto found = params.find(key);
  if (found == params.end() || found->is_null()) {
    NIBBLE_CHECK(fallback > 0,
                 kCorruptData,
                 "params.json: found no {}, expected one",
                 key);
    return fallback;
  }
  NIBBLE_CHECK(found->is_number_integer() && found->get<std::int64_t>() > 0 &&
                   found->get<std::int64_t>() < (std::int64_t{1} << 31),
               kCorruptData,
               "params.json: {}: found {}, expected a positive integer",
               key,
               found->dump());
  return found->get<std::int64_t>();
}

double real(const json& params, const char* key, double fallback) {
  const auto found = params.find(key);
  if (found == params.end() || found->is_null()) {
    return fallback;
  }
  NIBBLE_CHECK(found->is_number() && found->get<double>() > 0,
               kCorruptData,
               "params.json: {}: found {}, expected a positive number",
               key,
               found->dump());
  return found->get<double>();
}

bool flag(const json& params, const char* key) {
  const auto found = params.find(key);
  return found != params.end() && found->is_boolean() && found->get<bool>();
}

bool has(const json& params, const char* key) {
  const auto found = params.find(key);
  return found != params.end() && !found->is_null();
}

// Shape of a tensor of rank 0, or nullptr.
const Shape* shape_of(const MetaShards& shards, const std::string& name) {
  const auto* tensor = shards.ranks[0].weights->find(name);
  return tensor == nullptr ? nullptr : &tensor->shape;
}

// The full vocabulary: the embedding is cut along it, or (Llama 2) along dim.
std::int64_t vocabulary(const MetaShards& shards, std::int64_t dim) {
  const Shape* shape = shape_of(shards, "tok_embeddings.weight");
  NIBBLE_CHECK(shape != nullptr && shape->rank() == 2,
               kCorruptData,
               "shard: found no two-dimensional tok_embeddings.weight");
  const auto ranks = static_cast<std::int64_t>(shards.ranks.size());
  if ((*shape)[1] == dim) {
    return (*shape)[0] * ranks;
  }
  NIBBLE_CHECK((*shape)[1] * ranks == dim,
               kCorruptData,
               "tok_embeddings.weight: found {} in each of {} shards, expected "
               "{} columns in all",
               to_string(*shape),
               ranks,
               dim);
  return (*shape)[0];
}

// First and end-of-text tokens of the published tokenizers, by vocabulary.
void set_tokens(json& config, std::int64_t vocabulary) {
  if (vocabulary == 32000) {
    config["bos_token_id"] = 1;
    config["eos_token_id"] = 2;
  } else if (vocabulary == 128256) {
    config["bos_token_id"] = 128000;
    config["eos_token_id"] = {128001, 128008, 128009};
  } else if (vocabulary == 202048) {
    config["bos_token_id"] = 200000;
    config["eos_token_id"] = {200001, 200007, 200008};
  }
}

json llama3_scaling(double factor, double high) {
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", high},
          {"original_max_position_embeddings", 8192}};
}

// Width of a layer's MLP from the rows of its first matrix in all shards.
std::int64_t mlp_width(const MetaShards& shards, const std::string& prefix) {
  const auto ranks = static_cast<std::int64_t>(shards.ranks.size());
  if (const Shape* w1 = shape_of(shards, prefix + "w1.weight")) {
    // gpt-fast's tile-packed codes: (rows / 8, tiles, 32, words).
    return (*w1)[0] * ranks * (w1->rank() == 4 ? 8 : 1);
  }
  if (const Shape* fc1 = shape_of(shards, prefix + "mlp.fc1_weight")) {
    return (*fc1)[0] / 2 * ranks;
  }
  return 0;
}

// Width of the routed experts: moe_w_out is (experts * width, dim), with half
// as many rows when two 4-bit codes share a byte.
std::int64_t expert_width(const MetaShards& shards,
                          const std::string& prefix,
                          std::int64_t dim,
                          std::int64_t experts) {
  const auto ranks = static_cast<std::int64_t>(shards.ranks.size());
  const Shape* gate = shape_of(shards, prefix + "experts.moe_w_in_eD_F");
  if (gate == nullptr) {
    return 0;
  }
  NIBBLE_CHECK(gate->rank() == 2 && ((*gate)[0] == experts * dim ||
                                     (*gate)[0] == experts * dim / 2),
               kCorruptData,
               "{}experts.moe_w_in_eD_F: found {}, expected {} rows",
               prefix,
               to_string(*gate),
               experts * dim);
  return (*gate)[1] * ranks;
}

void set_llama4(json& config,
                const json& params,
                const MetaShards& shards,
                std::int64_t dim,
                std::int64_t layers) {
  config["architectures"] = {"Llama4ForCausalLM"};
  config["model_type"] = "llama4_text";
  config["max_position_embeddings"] = 262144;
  config["use_qk_norm"] = flag(params, "use_qk_norm");
  const std::int64_t interval = has(params, "nope_layer_interval")
                                    ? integer(params, "nope_layer_interval")
                                    : 0;
  json rope_layers = json::array();
  for (std::int64_t i = 0; i < layers; ++i) {
    rope_layers.push_back(interval != 0 && (i + 1) % interval == 0 ? 0 : 1);
  }
  config["no_rope_layers"] = rope_layers;
  config["attention_chunk_size"] =
      has(params, "attention_chunk_size")
          ? json(integer(params, "attention_chunk_size"))
          : json(nullptr);
  config["attn_temperature_tuning"] = flag(params, "attn_temperature_tuning");
  config["floor_scale"] = real(params, "floor_scale", 8192);
  config["attn_scale"] = real(params, "attn_scale", 0.1);
  if (flag(params, "use_scaled_rope")) {
    config["rope_scaling"] =
        llama3_scaling(real(params, "rope_scaling_factor", 16),
                       real(params, "rope_high_freq_factor", 1));
  }
  json moe_layers = json::array();
  std::int64_t experts = 0;
  std::int64_t width = 0;
  std::int64_t dense_width = 0;
  if (has(params, "moe_args")) {
    const json& moe = params["moe_args"];
    experts = integer(moe, "num_experts");
    const std::int64_t step = integer(moe, "interleave_moe_layer_step", 1);
    config["num_experts_per_tok"] = integer(moe, "top_k", 1);
    for (std::int64_t i = step - 1; i < layers; i += step) {
      moe_layers.push_back(i);
    }
  }
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string prefix = fmt::format("layers.{}.feed_forward.", i);
    width = std::max(width, expert_width(shards, prefix, dim, experts));
    dense_width = std::max(dense_width, mlp_width(shards, prefix));
  }
  config["moe_layers"] = moe_layers;
  config["num_local_experts"] = std::max<std::int64_t>(experts, 1);
  config["intermediate_size"] = width != 0 ? width : dense_width;
  config["intermediate_size_mlp"] = dense_width != 0 ? dense_width : width;
}

void set_llama(json& config,
               const json& params,
               const MetaShards& shards,
               std::int64_t dim) {
  config["architectures"] = {"LlamaForCausalLM"};
  config["model_type"] = "llama";
  config["intermediate_size"] = mlp_width(shards, "layers.0.feed_forward.");
  const bool scaled = flag(params, "use_scaled_rope");
  const bool llama2 = !has(params, "rope_theta");
  config["max_position_embeddings"] = llama2 ? 4096 : scaled ? 131072 : 8192;
  if (scaled) {
    // params.json does not carry the factor: the 1B and 3B of Llama 3.2 were
    // trained with 32, all others with 8.
    const bool small = dim == 2048 || dim == 3072;
    config["rope_scaling"] =
        llama3_scaling(real(params, "rope_scaling_factor", small ? 32 : 8),
                       real(params, "rope_high_freq_factor", 4));
  }
}

}  // namespace

json config_from_params(const json& given, const MetaShards& shards) {
  const auto nested = given.find("model");
  const json& params =
      nested != given.end() && nested->is_object() ? *nested : given;
  NIBBLE_CHECK(!has(params, "vision_chunk_size") ||
                   integer(params, "vision_chunk_size") == 0,
               kUnsupported,
               "params.json: found a cross-attention vision model, expected a "
               "text model or Llama 4");
  const std::int64_t dim = integer(params, "dim");
  const std::int64_t layers = integer(params, "n_layers");
  const std::int64_t heads = integer(params, "n_heads");
  NIBBLE_CHECK(
      layers <= 100'000 && dim % heads == 0,
      kCorruptData,
      "params.json: found dim {} with {} heads and {} layers, expected "
      "heads that divide dim",
      dim,
      heads,
      layers);
  json config;
  config["hidden_size"] = dim;
  config["num_hidden_layers"] = layers;
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = integer(params, "n_kv_heads", heads);
  config["head_dim"] = dim / heads;
  config["vocab_size"] = vocabulary(shards, dim);
  config["rms_norm_eps"] = real(params, "norm_eps", 1e-5);
  config["rope_theta"] = real(params, "rope_theta", 10000);
  config["hidden_act"] = "silu";
  config["attention_bias"] = false;
  config["tie_word_embeddings"] = shape_of(shards, "output.weight") == nullptr;
  config["torch_dtype"] =
      shards.ranks[0].weights->get("norm.weight").dtype == DType::kF16
          ? "float16"
      : shards.ranks[0].weights->get("norm.weight").dtype == DType::kF32
          ? "float32"
          : "bfloat16";
  const bool llama4 = has(params, "moe_args") ||
                      has(params, "nope_layer_interval") ||
                      has(params, "ffn_exp");
  if (llama4) {
    set_llama4(config, params, shards, dim, layers);
  } else {
    set_llama(config, params, shards, dim);
  }
  set_tokens(config, config["vocab_size"].get<std::int64_t>());
  if (!shards.mode.empty()) {
    config["quantization_config"] = {{"quant_method", "meta"},
                                     {"mode", shards.mode},
                                     {"ranks", shards.ranks.size()}};
  }
  return config;
}

}  // namespace nibble::load
