#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace nibble::model {

enum class RopeScaling { kNone, kLlama3, kLinear };

// What one decoder layer does differently from the others.
struct LayerConfig {
  bool rope = true;
  // Rotary layers of Llama 4 attend inside chunks of this many positions;
  // 0 = the whole past.
  std::int64_t attention_chunk = 0;
  // Llama 4 layers without rope scale q by position.
  bool temperature_tuning = false;
  bool qk_norm = false;  // weightless, after rope (Llama 4)
  bool experts = false;
  std::int64_t intermediate = 0;  // of the dense MLP; 0 in expert layers
};

// A decoder of the Llama family, free of file spellings: what
// config.json (or params.json) of any generation comes down to.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM" ...
  // "" or "language_model.": stands before every decoder tensor's name.
  std::string name_prefix;
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_positions = 0;
  float rms_epsilon = 1e-6F;
  bool tied_head = false;
  bool attention_bias = false;
  bool mlp_bias = false;

  double rope_theta = 10000;
  bool rope_interleaved = false;
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_factor = 1;
  double rope_low_freq_factor = 1;
  double rope_high_freq_factor = 4;
  double rope_original_positions = 8192;

  double attention_scale = 0.1;  // temperature tuning of Llama 4
  double attention_floor_scale = 8192;

  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_intermediate = 0;
  // Name of a layer's MLP or experts: "mlp" or "feed_forward".
  std::string mlp_module = "mlp";

  std::vector<LayerConfig> layers;

  std::optional<std::int32_t> bos_token;
  std::vector<std::int32_t> eos_tokens;
};

// Rows of q and k come in two orders inside a head. Hugging Face's files keep
// the halves of a rotary pair half a head apart, Meta's side by side:
// row b * head_dim / 2 + i there is row 2 i + b here, b 0 or 1.

// Meta's row that holds a row of Hugging Face's order.
[[nodiscard]] constexpr std::int64_t row_of_pair(std::int64_t row,
                                                 std::int64_t head_dim) {
  const std::int64_t half = head_dim / 2;
  const std::int64_t in_head = row % head_dim;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

// Hugging Face's row that holds a row of Meta's order: the inverse.
[[nodiscard]] constexpr std::int64_t row_of_half(std::int64_t row,
                                                 std::int64_t head_dim) {
  const std::int64_t half = head_dim / 2;
  const std::int64_t in_head = row % head_dim;
  return row - in_head + in_head % 2 * half + in_head / 2;
}

// The config of a Hugging Face config.json, old and new spelling, with the
// defaults of its class for absent keys. kUnsupported for an architecture or a
// feature that the model does not compute, kCorruptData for impossible values.
[[nodiscard]] ModelConfig parse_config(const nlohmann::json& config);

}  // namespace nibble::model
