#include "nibble/model/config.h"

#include <limits>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/model/config_json.h"

namespace nibble::model {
namespace {

using nlohmann::json;

// Bounds on what a file may ask for, far above every published model. Their
// products fit 64 bits, and a model with empty slots stays small.
constexpr std::int64_t kMostHidden = std::int64_t{1} << 20;
constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 26;
constexpr std::int64_t kMostLayers = 2048;
constexpr std::int64_t kMostHeads = std::int64_t{1} << 14;
constexpr std::int64_t kMostHeadDim = std::int64_t{1} << 13;
constexpr std::int64_t kMostPositions = std::int64_t{1} << 30;
constexpr std::int64_t kMostExperts = 4096;
constexpr std::int64_t kMostExpertsInAll = std::int64_t{1} << 18;

// What a class assumes for an absent key.
struct ClassDefaults {
  std::int64_t vocabulary;
  std::int64_t hidden;
  std::int64_t layers;
  std::int64_t heads;
  std::int64_t kv_heads;  // 0 = as many as heads
  std::int64_t head_dim;  // 0 = hidden / heads
  std::int64_t max_positions;
  double rms_epsilon;
  double rope_theta;
};

constexpr ClassDefaults kLlamaDefaults{
    32000, 4096, 32, 32, 0, 0, 2048, 1e-6, 10000};
constexpr ClassDefaults kLlama4Defaults{
    202048, 5120, 48, 40, 8, 128, 131072, 1e-5, 500000};

// An integer whose absence and whose null mean different things.
std::int64_t integer_or_null(const Fields& fields,
                             std::string_view key,
                             std::int64_t absent,
                             std::int64_t null,
                             std::int64_t most) {
  return fields.integer(key, fields.contains(key) ? null : absent, 1, most);
}

void parse_token_ids(const Fields& fields, ModelConfig& config) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (fields.find("bos_token_id") != nullptr) {
    config.bos_token =
        static_cast<std::int32_t>(fields.integer("bos_token_id", 0, 0, kMost));
  }
  const json* eos = fields.find("eos_token_id");
  if (eos == nullptr) {
    return;
  }
  const std::string where = fields.place("eos_token_id");
  if (!eos->is_array()) {
    config.eos_tokens = {
        static_cast<std::int32_t>(checked_integer(*eos, where, 0, kMost))};
    return;
  }
  for (const json& id : *eos) {
    config.eos_tokens.push_back(
        static_cast<std::int32_t>(checked_integer(id, where, 0, kMost)));
  }
}

void parse_llama3_scaling(const Fields& fields, ModelConfig& config) {
  constexpr double kMost = 1e9;
  for (const std::string_view key : {"low_freq_factor",
                                     "high_freq_factor",
                                     "original_max_position_embeddings"}) {
    NIBBLE_CHECK(fields.find(key) != nullptr,
                 kCorruptData,
                 "{}: found nothing, expected a number: llama3 scaling "
                 "needs it",
                 fields.place(key));
  }
  config.rope_low_freq_factor =
      fields.number("low_freq_factor", 1, 1e-9, kMost);
  config.rope_high_freq_factor =
      fields.number("high_freq_factor", 4, 1e-9, kMost);
  config.rope_original_positions = fields.number(
      "original_max_position_embeddings", 8192, 1, double{kMostPositions});
  NIBBLE_CHECK(config.rope_low_freq_factor <= config.rope_high_freq_factor,
               kCorruptData,
               "{}: found {}, expected at most high_freq_factor, {}",
               fields.place("low_freq_factor"),
               config.rope_low_freq_factor,
               config.rope_high_freq_factor);
}

// Both spellings: rope_theta with rope_scaling {"type" or "rope_type"}, and
// rope_parameters that holds all of it.
void parse_rope(const Fields& fields, double theta, ModelConfig& config) {
  constexpr double kMost = 1e12;
  const bool new_spelling = fields.find("rope_parameters") != nullptr;
  const std::string_view key =
      new_spelling ? "rope_parameters" : "rope_scaling";
  config.rope_theta = fields.number("rope_theta", theta, 1, kMost);
  const json* object = fields.find(key);
  if (object == nullptr) {
    return;
  }
  const Fields rope(*object, fields.place(key));
  for (const auto& [name, value] : object->items()) {
    NIBBLE_CHECK(!value.is_object(),
                 kUnsupported,
                 "{}: found an object, expected one set of values for all "
                 "layers",
                 rope.place(printable(name)));
  }
  config.rope_theta = rope.number("rope_theta", config.rope_theta, 1, kMost);
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") {
    return;
  }
  if (type != "llama3" && type != "linear") {
    fail_with_hint(ErrorCode::kUnsupported,
                   "other kinds of position scaling cannot be computed yet",
                   "{}: found '{}', expected default, linear or llama3",
                   rope.place("rope_type"),
                   printable(type));
  }
  NIBBLE_CHECK(rope.find("factor") != nullptr,
               kCorruptData,
               "{}: found nothing, expected a number: {} scaling needs it",
               rope.place("factor"),
               type);
  config.rope_factor = rope.number("factor", 1, 1e-6, 1e9);
  config.rope_scaling =
      type == "linear" ? RopeScaling::kLinear : RopeScaling::kLlama3;
  if (config.rope_scaling == RopeScaling::kLlama3) {
    parse_llama3_scaling(rope, config);
  }
}

void refuse_unknown_features(const Fields& fields) {
  const std::string activation = fields.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fail_with_hint(ErrorCode::kUnsupported,
                   "other activation functions cannot be computed yet",
                   "{}: found '{}', expected silu",
                   fields.place("hidden_act"),
                   printable(activation));
  }
  const double rotary = fields.number("partial_rotary_factor", 1, 0, 1);
  NIBBLE_CHECK(rotary == 1,
               kUnsupported,
               "{}: found {}, expected 1",
               fields.place("partial_rotary_factor"),
               rotary);
}

void parse_head_counts(const Fields& fields,
                       const ClassDefaults& defaults,
                       ModelConfig& config) {
  config.heads =
      fields.integer("num_attention_heads", defaults.heads, 1, kMostHeads);
  config.kv_heads =
      integer_or_null(fields,
                      "num_key_value_heads",
                      defaults.kv_heads == 0 ? config.heads : defaults.kv_heads,
                      config.heads,
                      kMostHeads);
  NIBBLE_CHECK(config.heads % config.kv_heads == 0,
               kCorruptData,
               "{}: found {}, expected a divisor of num_attention_heads, {}",
               fields.place("num_key_value_heads"),
               config.kv_heads,
               config.heads);
  config.head_dim =
      integer_or_null(fields, "head_dim", defaults.head_dim, 0, kMostHeadDim);
  if (config.head_dim == 0) {
    NIBBLE_CHECK(config.hidden % config.heads == 0,
                 kCorruptData,
                 "{}: found {}, expected a multiple of num_attention_heads, "
                 "{}, as head_dim is not given",
                 fields.place("hidden_size"),
                 config.hidden,
                 config.heads);
    config.head_dim = config.hidden / config.heads;
  }
  NIBBLE_CHECK(config.head_dim % 2 == 0 && config.head_dim <= kMostHeadDim,
               kCorruptData,
               "{}: found {}, expected an even number up to {}: rotary "
               "embedding turns pairs",
               fields.place("head_dim"),
               config.head_dim,
               kMostHeadDim);
}

// What both classes spell alike.
ModelConfig parse_common(const Fields& fields, const ClassDefaults& defaults) {
  ModelConfig config;
  refuse_unknown_features(fields);
  config.hidden =
      fields.integer("hidden_size", defaults.hidden, 1, kMostHidden);
  config.vocabulary =
      fields.integer("vocab_size", defaults.vocabulary, 1, kMostVocabulary);
  parse_head_counts(fields, defaults, config);
  config.max_positions = fields.integer(
      "max_position_embeddings", defaults.max_positions, 1, kMostPositions);
  config.rms_epsilon = static_cast<float>(
      fields.number("rms_norm_eps", defaults.rms_epsilon, 0, 1));
  config.tied_head = fields.boolean("tie_word_embeddings", false);
  config.attention_bias = fields.boolean("attention_bias", false);
  parse_rope(fields, defaults.rope_theta, config);
  parse_token_ids(fields, config);
  config.layers.resize(static_cast<std::size_t>(
      fields.integer("num_hidden_layers", defaults.layers, 1, kMostLayers)));
  return config;
}

ModelConfig parse_llama(const Fields& fields) {
  ModelConfig config = parse_common(fields, kLlamaDefaults);
  config.mlp_bias = fields.boolean("mlp_bias", false);
  const std::int64_t intermediate =
      fields.integer("intermediate_size", 11008, 1, kMostHidden);
  for (LayerConfig& layer : config.layers) {
    layer.intermediate = intermediate;
  }
  // The class's own token ids, for files without the keys.
  if (!fields.contains("bos_token_id")) {
    config.bos_token = 1;
  }
  if (!fields.contains("eos_token_id")) {
    config.eos_tokens = {2};
  }
  return config;
}

// A list with one entry for each layer, or nullptr.
const json* layer_list(const Fields& fields,
                       std::string_view key,
                       std::size_t layers,
                       bool empty_is_absent) {
  const json* list = fields.find(key);
  if (list == nullptr ||
      (empty_is_absent && list->is_array() && list->empty())) {
    return nullptr;
  }
  NIBBLE_CHECK(list->is_array() && list->size() == layers,
               kCorruptData,
               "{}: found {}, expected a list of {}, one for each layer",
               fields.place(key),
               printable_value(*list),
               layers);
  return list;
}

// The list's name is the wrong way round: 1 means that the layer has rope.
void parse_rope_layers(const Fields& fields, ModelConfig& config) {
  const std::int64_t interval =
      fields.integer("no_rope_layer_interval", 4, 1, kMostLayers);
  const json* list =
      layer_list(fields, "no_rope_layers", config.layers.size(), true);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].rope =
        list != nullptr
            ? checked_integer(
                  (*list)[i], fields.place("no_rope_layers"), 0, 1) == 1
            : (static_cast<std::int64_t>(i) + 1) % interval != 0;
  }
}

void parse_chunks(const Fields& fields, ModelConfig& config) {
  // An explicit null or 0 means that no layer is cut into chunks.
  const std::int64_t chunk =
      fields.integer("attention_chunk_size",
                     fields.contains("attention_chunk_size") ? 0 : 8192,
                     0,
                     kMostPositions);
  const json* types =
      layer_list(fields, "layer_types", config.layers.size(), false);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    bool chunked = layer.rope;
    if (types != nullptr) {
      const json& type = (*types)[i];
      chunked = type == "chunked_attention";
      NIBBLE_CHECK(chunked || type == "full_attention",
                   kUnsupported,
                   "{}: found {}, expected chunked_attention or "
                   "full_attention",
                   fields.place("layer_types"),
                   printable_value(type));
    }
    layer.attention_chunk = chunked ? chunk : 0;
  }
}

// The list of expert layers wins over the step.
void parse_expert_layers(const Fields& fields, ModelConfig& config) {
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  const std::int64_t step =
      fields.integer("interleave_moe_layer_step", 1, 1, kMostLayers);
  const json* list = fields.find("moe_layers");
  if (list == nullptr) {
    for (std::int64_t i = step - 1; i < layers; i += step) {
      config.layers[static_cast<std::size_t>(i)].experts = true;
    }
    return;
  }
  NIBBLE_CHECK(list->is_array(),
               kCorruptData,
               "{}: found {}, expected a list of layers",
               fields.place("moe_layers"),
               printable_value(*list));
  for (const json& entry : *list) {
    const std::int64_t i =
        checked_integer(entry, fields.place("moe_layers"), 0, layers - 1);
    config.layers[static_cast<std::size_t>(i)].experts = true;
  }
}

// true, false, or a number that stands for true unless it is 0.
bool parse_temperature_tuning(const Fields& fields) {
  const json* value = fields.find("attn_temperature_tuning");
  if (value != nullptr && value->is_number_integer()) {
    return *value != 0;
  }
  return fields.boolean("attn_temperature_tuning", true);
}

ModelConfig parse_llama4(const Fields& fields) {
  ModelConfig config = parse_common(fields, kLlama4Defaults);
  config.rope_interleaved = true;
  config.attention_scale = fields.number("attn_scale", 0.1, -1e6, 1e6);
  config.attention_floor_scale = fields.number("floor_scale", 8192, 1, 1e12);
  config.experts = fields.integer("num_local_experts", 16, 1, kMostExperts);
  config.experts_per_token =
      fields.integer("num_experts_per_tok", 1, 1, config.experts);
  config.expert_intermediate =
      fields.integer("intermediate_size", 8192, 1, kMostHidden);
  config.mlp_module = "feed_forward";
  parse_rope_layers(fields, config);
  parse_chunks(fields, config);
  parse_expert_layers(fields, config);
  const std::int64_t intermediate =
      fields.integer("intermediate_size_mlp", 16384, 1, kMostHidden);
  const bool qk_norm = fields.boolean("use_qk_norm", true);
  const bool tuning = parse_temperature_tuning(fields);
  std::int64_t experts = 0;
  for (LayerConfig& layer : config.layers) {
    layer.qk_norm = qk_norm && layer.rope;
    layer.temperature_tuning = tuning && !layer.rope;
    layer.intermediate = layer.experts ? 0 : intermediate;
    experts += layer.experts ? config.experts : 0;
  }
  NIBBLE_CHECK(experts <= kMostExpertsInAll,
               kCorruptData,
               "{}: found {} experts in all layers, expected at most {}",
               fields.place("num_local_experts"),
               experts,
               kMostExpertsInAll);
  return config;
}

}  // namespace

ModelConfig parse_config(const json& config) {
  const std::string architecture = architecture_of(config);
  ModelConfig parsed;
  if (architecture == "LlamaForCausalLM") {
    parsed = parse_llama(Fields(config, "config.json"));
  } else if (architecture == "Llama4ForCausalLM") {
    parsed = parse_llama4(Fields(config, "config.json"));
  } else if (architecture == "Llama4ForConditionalGeneration") {
    const json& text = text_config_of(config);
    NIBBLE_CHECK(&text != &config,
                 kCorruptData,
                 "config.json: text_config: found nothing, expected the "
                 "decoder's config");
    parsed = parse_llama4(Fields(text, "config.json: text_config"));
    parsed.name_prefix = "language_model.";
  } else {
    fail_with_hint(ErrorCode::kUnsupported,
                   "the weights of other architectures can be rewritten, but "
                   "such a model cannot be run",
                   "config.json: architectures: found '{}', expected "
                   "LlamaForCausalLM, Llama4ForCausalLM or "
                   "Llama4ForConditionalGeneration",
                   printable(architecture));
  }
  parsed.architecture = architecture;
  return parsed;
}

}  // namespace nibble::model
