#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include <nlohmann/json.hpp>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/load/native/native_view.h"
#include "nibble/model/config.h"

namespace nibble::load {
namespace {

using model::ModelConfig;
using nlohmann::json;

// The step s with which `chosen` holds exactly for layers s-1, 2s-1, ...; 0
// when it holds for none. kUnsupported for any other pattern.
template <typename Chosen>
std::int64_t step_of(const ModelConfig& config,
                     const char* what,
                     Chosen chosen) {
  const auto count = static_cast<std::int64_t>(config.layers.size());
  std::int64_t step = 0;
  for (std::int64_t i = 0; i < count && step == 0; ++i) {
    if (chosen(config.layers[static_cast<std::size_t>(i)])) {
      step = i + 1;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const bool expected = step != 0 && (i + 1) % step == 0;
    NIBBLE_CHECK(
        chosen(config.layers[static_cast<std::size_t>(i)]) == expected,
        kUnsupported,
        "params.json: layer {}: found an irregular choice of {}, expected "
        "every n-th layer",
        i,
        what);
  }
  return step;
}

// int(2 h / 3) of Meta's rule for the width of an MLP.
std::int64_t two_thirds(std::int64_t h) {
  return 2 * h / 3;
}

// Parameters with which Meta's rule gives these widths:
// F = multiple_of * ceil(int(m * int(2 int(e D) / 3)) / multiple_of), where e
// is 4 for dense layers and ffn_exp for experts.
void set_widths(json& params,
                const ModelConfig& config,
                std::int64_t dense,
                std::int64_t expert) {
  const std::int64_t base = two_thirds(4 * config.hidden);
  const std::int64_t multiple =
      expert == 0 ? 1 : std::gcd(expert, dense == 0 ? expert : dense);
  double factor = 1;
  if (dense != 0) {
    factor = (static_cast<double>(dense) - 0.5) / static_cast<double>(base);
    if (multiple == 1) {
      factor = (static_cast<double>(dense) + 0.5) / static_cast<double>(base);
    }
  }
  params["multiple_of"] = multiple;
  params["ffn_dim_multiplier"] = factor;
  if (expert == 0) {
    return;
  }
  const auto width = [&](std::int64_t h) {
    const auto scaled =
        static_cast<std::int64_t>(factor * static_cast<double>(two_thirds(h)));
    return round_up(scaled, multiple);
  };
  std::int64_t h = 1;
  while (width(h) < expert) {
    ++h;
  }
  NIBBLE_CHECK(width(h) == expert,
               kUnsupported,
               "params.json: found an expert width of {}, which no ffn_exp "
               "gives beside a dense width of {}",
               expert,
               dense);
  params["ffn_exp"] =
      (static_cast<double>(h) + 0.25) / static_cast<double>(config.hidden);
}

void set_rope(json& params, const ModelConfig& config, bool llama2) {
  if (!llama2) {
    params["rope_theta"] = config.rope_theta;
  }
  const bool scaled = config.rope_scaling == model::RopeScaling::kLlama3;
  NIBBLE_CHECK(
      scaled ? config.rope_low_freq_factor == 1 &&
                   config.rope_original_positions == 8192
             : config.rope_scaling == model::RopeScaling::kNone,
      kUnsupported,
      "params.json: found a rope scaling that it cannot express, expected "
      "Llama 3's with low factor 1 over 8192 positions");
  params["use_scaled_rope"] = scaled;
  if (scaled) {
    params["rope_scaling_factor"] = config.rope_factor;
    params["rope_high_freq_factor"] = config.rope_high_freq_factor;
  }
}

void set_llama4(json& params, const ModelConfig& config) {
  const std::int64_t rope_step =
      step_of(config, "layers without rope", [](const auto& layer) {
        return !layer.rope;
      });
  const std::int64_t expert_step = step_of(
      config, "expert layers", [](const auto& layer) { return layer.experts; });
  std::int64_t chunk = 0;
  bool qk_norm = false;
  bool tuning = false;
  std::int64_t dense = 0;
  for (const model::LayerConfig& layer : config.layers) {
    chunk = std::max(chunk, layer.attention_chunk);
    qk_norm = qk_norm || layer.qk_norm;
    tuning = tuning || layer.temperature_tuning;
    dense = std::max(dense, layer.intermediate);
  }
  params["nope_layer_interval"] =
      rope_step == 0 ? json(nullptr) : json(rope_step);
  params["attention_chunk_size"] = chunk == 0 ? json(nullptr) : json(chunk);
  params["use_qk_norm"] = qk_norm;
  params["attn_temperature_tuning"] = tuning;
  params["floor_scale"] = config.attention_floor_scale;
  params["attn_scale"] = config.attention_scale;
  params["head_dim"] = config.head_dim;
  if (expert_step == 0) {
    params["moe_args"] = nullptr;
  } else {
    params["moe_args"] = {{"num_experts", config.experts},
                          {"capacity_factor", 1.0},
                          {"auto_scale_F", false},
                          {"top_k", config.experts_per_token},
                          {"interleave_moe_layer_step", expert_step}};
  }
  set_widths(
      params, config, dense, expert_step == 0 ? 0 : config.expert_intermediate);
}

}  // namespace

json params_from_config(const json& given) {
  const ModelConfig config = model::parse_config(given);
  const bool llama4 = config.rope_interleaved;
  json params;
  params["dim"] = config.hidden;
  params["n_layers"] = config.layers.size();
  params["n_heads"] = config.heads;
  params["n_kv_heads"] = config.kv_heads;
  params["vocab_size"] = config.vocabulary;
  // Through text: the shortest decimal that gives the same float32.
  params["norm_eps"] = std::stod(fmt::format("{}", config.rms_epsilon));
  set_rope(params, config, !llama4 && config.rope_theta == 10000);
  if (llama4) {
    set_llama4(params, config);
  } else {
    set_widths(params, config, config.layers.at(0).intermediate, 0);
  }
  return params;
}

}  // namespace nibble::load
