#include "nibble/quant/pipeline/plan/engine_facts.h"

#include <initializer_list>

#include <nlohmann/json.hpp>

namespace nibble::quant {
namespace {

using nlohmann::json;

// The first of the keys that holds a sensible number, or 0. Configs of
// families that nothing here parses may hold anything.
std::int64_t number(const json& config,
                    std::initializer_list<const char*> keys) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  for (const char* key : keys) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_number_integer()) {
      const auto value = found->get<std::int64_t>();
      return value > 0 && value < kMost ? value : 0;
    }
  }
  return 0;
}

}  // namespace

ModelFacts model_facts(const Plan& plan,
                       const load::CheckpointDirectory& source) {
  const json& config = *source.config;
  const auto text = config.find("text_config");
  const json& decoder =
      text != config.end() && text->is_object() ? *text : config;
  ModelFacts facts;
  facts.family = plan.family;
  facts.format = plan.format;
  facts.heads = number(decoder, {"num_attention_heads"});
  facts.kv_heads = number(decoder, {"num_key_value_heads"});
  if (facts.kv_heads == 0) {
    facts.kv_heads = facts.heads;
  }
  facts.vocabulary = number(decoder, {"vocab_size"});
  facts.experts = number(decoder, {"num_local_experts", "num_experts"});
  facts.layers.reserve(plan.decisions.size());
  for (std::size_t i = 0; i < plan.decisions.size(); ++i) {
    const LayerDecision& decision = plan.decisions[i];
    facts.layers.push_back({decision.module,
                            plan.roles[i],
                            decision.rows,
                            decision.columns,
                            decision.spec ? &*decision.spec : nullptr});
  }
  return facts;
}

}  // namespace nibble::quant
