#include "nibble/model/family.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/model/config_json.h"

namespace nibble::model {
namespace {

using nlohmann::json;
using std::string_view;

// ---- The table -------------------------------------------------------------

constexpr std::array<string_view, 3> kQkv{"q_proj", "k_proj", "v_proj"};
constexpr std::array<string_view, 2> kGateUp{"gate_proj", "up_proj"};
constexpr std::array<string_view, 1> kDown{"down_proj"};
constexpr std::array<std::span<const string_view>, 2> kFused{kQkv, kGateUp};

constexpr std::array kLlamaNames{
    NameRule{"model.embed_tokens", Role::kEmbedding, false},
    NameRule{"model.norm", Role::kNorm, false},
    NameRule{"lm_head", Role::kHead, true},
    NameRule{"model.layers.#.input_layernorm", Role::kNorm, false},
    NameRule{"model.layers.#.post_attention_layernorm", Role::kNorm, false},
    NameRule{"model.layers.#.self_attn.q_norm", Role::kNorm, false},
    NameRule{"model.layers.#.self_attn.k_norm", Role::kNorm, false},
    NameRule{"model.layers.#.self_attn.q_proj", Role::kAttention, true},
    NameRule{"model.layers.#.self_attn.k_proj", Role::kAttention, true},
    NameRule{"model.layers.#.self_attn.v_proj", Role::kAttention, true},
    NameRule{"model.layers.#.self_attn.o_proj", Role::kAttention, true},
    NameRule{"model.layers.#.mlp.gate_proj", Role::kMlp, true},
    NameRule{"model.layers.#.mlp.up_proj", Role::kMlp, true},
    NameRule{"model.layers.#.mlp.down_proj", Role::kMlp, true},
};

#define NIBBLE_FEED_FORWARD "model.layers.#.feed_forward."
constexpr std::array kLlama4Names{
    NameRule{"model.embed_tokens", Role::kEmbedding, false},
    NameRule{"model.norm", Role::kNorm, false},
    NameRule{"lm_head", Role::kHead, true},
    NameRule{"model.layers.#.input_layernorm", Role::kNorm, false},
    NameRule{"model.layers.#.post_attention_layernorm", Role::kNorm, false},
    NameRule{"model.layers.#.self_attn.q_proj", Role::kAttention, true},
    NameRule{"model.layers.#.self_attn.k_proj", Role::kAttention, true},
    NameRule{"model.layers.#.self_attn.v_proj", Role::kAttention, true},
    NameRule{"model.layers.#.self_attn.o_proj", Role::kAttention, true},
    NameRule{NIBBLE_FEED_FORWARD "gate_proj", Role::kMlp, true},
    NameRule{NIBBLE_FEED_FORWARD "up_proj", Role::kMlp, true},
    NameRule{NIBBLE_FEED_FORWARD "down_proj", Role::kMlp, true},
    NameRule{NIBBLE_FEED_FORWARD "router", Role::kRouter, true},
    NameRule{NIBBLE_FEED_FORWARD "experts.#.gate_proj", Role::kExpert, true},
    NameRule{NIBBLE_FEED_FORWARD "experts.#.up_proj", Role::kExpert, true},
    NameRule{NIBBLE_FEED_FORWARD "experts.#.down_proj", Role::kExpert, true},
    NameRule{NIBBLE_FEED_FORWARD "shared_expert.gate_proj",
             Role::kSharedExpert,
             true},
    NameRule{
        NIBBLE_FEED_FORWARD "shared_expert.up_proj", Role::kSharedExpert, true},
    NameRule{NIBBLE_FEED_FORWARD "shared_expert.down_proj",
             Role::kSharedExpert,
             true},
};

constexpr std::array kLlama4Stacks{
    StackRule{NIBBLE_FEED_FORWARD "experts.gate_up_proj",
              kGateUp,
              "hidden_size",
              5120,
              "intermediate_size",
              8192,
              "num_local_experts",
              16},
    StackRule{NIBBLE_FEED_FORWARD "experts.down_proj",
              kDown,
              "intermediate_size",
              8192,
              "hidden_size",
              5120,
              "num_local_experts",
              16},
};
#undef NIBBLE_FEED_FORWARD

constexpr std::array kDenseKeep{
    Role::kEmbedding, Role::kNorm, Role::kHead, Role::kBuffer};
// Attention of Llama 4 is small beside its experts and suffers first.
constexpr std::array kLlama4Keep{Role::kEmbedding,
                                 Role::kNorm,
                                 Role::kHead,
                                 Role::kBuffer,
                                 Role::kRouter,
                                 Role::kAttention,
                                 Role::kVision};
constexpr std::array kPlainKeep{Role::kEmbedding,
                                Role::kNorm,
                                Role::kHead,
                                Role::kBuffer,
                                Role::kRouter,
                                Role::kVision};

constexpr std::array<string_view, 1> kLlamaClasses{"LlamaForCausalLM"};
constexpr std::array<string_view, 2> kLlama4Classes{
    "Llama4ForCausalLM", "Llama4ForConditionalGeneration"};
constexpr std::array<string_view, 1> kMistralClasses{"MistralForCausalLM"};
constexpr std::array<string_view, 1> kQwen2Classes{"Qwen2ForCausalLM"};
constexpr std::array<string_view, 1> kQwen3Classes{"Qwen3ForCausalLM"};

constexpr std::array kFamilies{
    Family{"llama", kLlamaClasses, kDenseKeep, kFused, true, kLlamaNames, {}},
    Family{"llama4",
           kLlama4Classes,
           kLlama4Keep,
           kFused,
           true,
           kLlama4Names,
           kLlama4Stacks},
    Family{
        "mistral", kMistralClasses, kDenseKeep, kFused, false, kLlamaNames, {}},
    Family{"qwen2", kQwen2Classes, kDenseKeep, kFused, false, kLlamaNames, {}},
    Family{"qwen3", kQwen3Classes, kDenseKeep, kFused, false, kLlamaNames, {}},
    Family{"plain", {}, kPlainKeep, kFused, false, {}, {}},
};

// ---- Names -----------------------------------------------------------------

constexpr string_view kWrapperPrefix = "language_model.";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Whether name is pattern with digits for each #.
bool matches(string_view pattern, string_view name) {
  std::size_t at = 0;
  for (const char c : pattern) {
    if (c == '#') {
      const std::size_t begin = at;
      while (at < name.size() && is_digit(name[at])) {
        ++at;
      }
      if (at == begin) {
        return false;
      }
    } else if (at >= name.size() || name[at++] != c) {
      return false;
    }
  }
  return at == name.size();
}

bool contains_any(string_view name, std::span<const string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](string_view word) {
    return name.find(word) != string_view::npos;
  });
}

bool is_any(string_view name, std::span<const string_view> words) {
  return std::find(words.begin(), words.end(), name) != words.end();
}

// The number after the first "layers." (or "h.", "blocks."), or -1.
int layer_of(string_view name) {
  for (const string_view word : {"layers.", "blocks.", "h."}) {
    const std::size_t found = name.find(word);
    if (found == string_view::npos || (found > 0 && name[found - 1] != '.')) {
      continue;
    }
    const char* begin = name.data() + found + word.size();
    const char* end = name.data() + name.size();
    int layer = -1;
    const auto [rest, error] = std::from_chars(begin, end, layer);
    if (error == std::errc() && is_digit(*begin) && rest != end &&
        *rest == '.') {
      return layer;
    }
  }
  return -1;
}

// Roles by habits of naming, for families without a table of names.
Role habitual_role(string_view module) {
  static constexpr std::array<string_view, 10> kEmbeddings{
      "embed_tokens",
      "wte",
      "wpe",
      "word_embeddings",
      "embed_in",
      "tok_embeddings",
      "token_embedding",
      "embed_tokens_per_layer",
      "embed_positions",
      "position_embeddings"};
  static constexpr std::array<string_view, 3> kHeads{
      "lm_head", "embed_out", "output"};
  static constexpr std::array<string_view, 4> kRouters{
      "gate", "router", "shared_expert_gate", "wg"};
  const string_view last = last_part(module);
  if (is_any(last, kEmbeddings)) {
    return Role::kEmbedding;
  }
  // "output" names the head at the top, but a projection inside a layer.
  if (is_any(last, kHeads) && layer_of(module) < 0) {
    return Role::kHead;
  }
  if (is_any(last, kRouters)) {
    return Role::kRouter;
  }
  if (last.find("norm") != string_view::npos || last.starts_with("ln_")) {
    return Role::kNorm;
  }
  if (module.find(".experts.") != string_view::npos) {
    return Role::kExpert;
  }
  if (contains_any(module, std::array<string_view, 2>{"attn", "attention"})) {
    return Role::kAttention;
  }
  if (contains_any(module,
                   std::array<string_view, 3>{"mlp", "feed_forward", "ffn"})) {
    return Role::kMlp;
  }
  return Role::kOther;
}

bool is_vision(string_view name) {
  return contains_any(name,
                      std::array<string_view, 6>{"vision_model.",
                                                 "vision_tower.",
                                                 "visual.",
                                                 "multi_modal_projector.",
                                                 "image_newline",
                                                 "audio_tower."});
}

bool is_buffer(string_view part) {
  return is_any(part,
                std::array<string_view, 5>{"inv_freq",
                                           "masked_bias",
                                           "cos_cached",
                                           "sin_cached",
                                           "position_ids"});
}

// ---- Stacks ----------------------------------------------------------------

void place_stack(const StackRule& rule,
                 const json& config,
                 string_view name,
                 const Shape& shape,
                 TensorPlace& place) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  const Fields fields(text_config_of(config), "config.json");
  const std::int64_t experts =
      fields.integer(rule.experts_key, rule.experts_absent, 1, kMost);
  const std::int64_t in = fields.integer(rule.in_key, rule.in_absent, 1, kMost);
  const std::int64_t width =
      fields.integer(rule.width_key, rule.width_absent, 1, kMost);
  const auto parts = static_cast<std::int64_t>(rule.projections.size());
  const Shape expected{experts, in, parts * width};
  NIBBLE_CHECK(shape == expected,
               kCorruptData,
               "{}: found shape {}, expected {} ({}, {}, {} x {})",
               printable(name),
               to_string(shape),
               to_string(expected),
               rule.experts_key,
               rule.in_key,
               parts,
               rule.width_key);
  place.role = Role::kExpert;
  place.module = name;
  place.part.clear();
  place.linear = true;
  place.stack_module = name.substr(0, name.rfind('.'));
  for (std::int64_t i = 0; i < parts; ++i) {
    place.stacked.push_back(
        {std::string(rule.projections[static_cast<std::size_t>(i)]),
         i * width,
         width});
  }
}

}  // namespace

string_view last_part(string_view module) {
  return module.substr(module.rfind('.') + 1);
}

string_view role_name(Role role) {
  switch (role) {
    case Role::kEmbedding:
      return "embedding";
    case Role::kNorm:
      return "norm";
    case Role::kAttention:
      return "attention";
    case Role::kMlp:
      return "mlp";
    case Role::kExpert:
      return "expert";
    case Role::kSharedExpert:
      return "shared expert";
    case Role::kRouter:
      return "router";
    case Role::kHead:
      return "head";
    case Role::kVision:
      return "vision";
    case Role::kBuffer:
      return "buffer";
    case Role::kOther:
      break;
  }
  return "other";
}

std::span<const Family> families() {
  return kFamilies;
}

const Family& family_of(const json& config) {
  const std::string architecture = architecture_of(config);
  const auto found = std::find_if(
      kFamilies.begin(), kFamilies.end(), [&](const Family& family) {
        return is_any(architecture, family.architectures);
      });
  return found != kFamilies.end() ? *found : kFamilies.back();
}

TensorPlace place_of(const Family& family,
                     const json& config,
                     string_view tensor_name,
                     const Shape& shape) {
  TensorPlace place;
  const std::size_t dot = tensor_name.rfind('.');
  place.module = tensor_name.substr(0, dot);
  place.part = dot == string_view::npos ? "" : tensor_name.substr(dot + 1);
  if (is_vision(tensor_name)) {
    // Not a linear, so that no rule reaches it.
    place.role = Role::kVision;
    return place;
  }
  place.layer = layer_of(tensor_name);
  if (is_buffer(place.part)) {
    place.role = Role::kBuffer;
    return place;
  }
  const auto bare = [](string_view name) {
    return name.starts_with(kWrapperPrefix) ? name.substr(kWrapperPrefix.size())
                                            : name;
  };
  for (const StackRule& rule : family.stacks) {
    if (matches(rule.pattern, bare(tensor_name))) {
      place_stack(rule, config, tensor_name, shape, place);
      return place;
    }
  }
  const bool matrix = place.part == "weight" && shape.rank() == 2;
  if (family.names.empty()) {
    place.role = habitual_role(place.module);
    place.linear =
        matrix && place.role != Role::kEmbedding && place.role != Role::kNorm;
    return place;
  }
  for (const NameRule& rule : family.names) {
    if (matches(rule.pattern, bare(place.module))) {
      place.role = rule.role;
      place.linear = matrix && rule.linear;
      break;
    }
  }
  return place;
}

}  // namespace nibble::model
