#include "nibble/quant/recipe/resolve.h"

#include <algorithm>

#include <fmt/format.h>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/recipe/dead_rules.h"
#include "nibble/quant/recipe/indivisible.h"
#include "nibble/quant/recipe/siblings.h"

namespace nibble::quant {
namespace {

bool on_keep_list(const model::Family& family, model::Role role) {
  return std::find(family.keep_dense.begin(), family.keep_dense.end(), role) !=
         family.keep_dense.end();
}

Decision decide(const Recipe& recipe,
                const model::Family& family,
                const RulePatterns& rules,
                const LinearModule& linear) {
  Decision decision;
  const bool kept = recipe.defaults && on_keep_list(family, linear.role);
  decision.rule = rules.first_rule(linear, kept);
  if (kept && !decision.rule) {
    decision.reason = fmt::format("{} is on the keep list of {}",
                                  model::role_name(linear.role),
                                  family.name);
    return decision;
  }
  if (!decision.rule) {
    decision.reason = "no rule fits it";
    return decision;
  }
  const Rule& rule = recipe.rules[*decision.rule];
  decision.spec = rule.spec;
  if (rule.spec) {
    decision.algorithm = rule.algorithm;
    decision.reason = fmt::format("rules[{}]", *decision.rule);
  } else {
    decision.reason = fmt::format("rules[{}] keeps it", *decision.rule);
  }
  return decision;
}

// Columns of a linear as its rule has them: padded to whole groups where the
// layout is to do that.
std::int64_t columns_by(const Rule& rule, const LinearModule& linear) {
  return rule.on_indivisible == OnIndivisible::kPad &&
                 rule.spec->weight.grain == Grain::kGroup
             ? round_up(linear.columns, rule.spec->weight.group)
             : linear.columns;
}

void check_supported(const Recipe& recipe,
                     std::span<const LinearModule> linears,
                     std::span<const Decision> decisions) {
  for (std::size_t i = 0; i < linears.size(); ++i) {
    if (!decisions[i].spec) {
      continue;
    }
    const LayerSpec& spec = *decisions[i].spec;
    if (spec.input && linears[i].role == model::Role::kEmbedding) {
      fail_with_hint(
          ErrorCode::kBadRecipe,
          "give it a rule of its own with \"activations\": \"none\"",
          "rules[{}].activations: found {} for the embedding table {}, "
          "expected none: it has no inputs but token ids",
          *decisions[i].rule,
          spec.input->grain == Grain::kTensor ? "static" : "dynamic",
          linears[i].module);
    }
    if (spec.input && spec.input->grain == Grain::kTensor) {
      fail_with_hint(
          ErrorCode::kUnsupported,
          "use \"activations\": \"dynamic\"",
          "rules[{}].activations: found static, expected none or dynamic: "
          "the scales of static activations come from calibration",
          *decisions[i].rule);
    }
    with_context(
        fmt::format("rules[{}]: {}", *decisions[i].rule, linears[i].module),
        [&] {
          scheme_for(spec.weight)
              .check(spec,
                     linears[i].rows,
                     columns_by(recipe.rules[*decisions[i].rule], linears[i]));
        });
  }
}

}  // namespace

std::vector<Decision> resolve(const Recipe& recipe,
                              const model::Family& family,
                              std::span<const LinearModule> linears) {
  NIBBLE_CHECK(!linears.empty(),
               kUnsupported,
               "model: found no linear layer, expected at least one");
  const RulePatterns rules(recipe);
  std::vector<Decision> decisions;
  decisions.reserve(linears.size());
  for (const LinearModule& linear : linears) {
    decisions.push_back(decide(recipe, family, rules, linear));
  }
  check_rules_live(recipe, rules, linears, decisions);
  const auto siblings = sibling_sets(family, linears);
  apply_indivisible(recipe, linears, siblings, decisions);
  check_siblings(siblings, linears, decisions);
  check_supported(recipe, linears, decisions);
  const bool any = std::any_of(
      decisions.begin(), decisions.end(), [](const Decision& decision) {
        return decision.spec.has_value();
      });
  if (!any) {
    fail_with_hint(ErrorCode::kBadRecipe,
                   decisions.front().reason.empty()
                       ? ""
                       : fmt::format("for instance {}: {}",
                                     linears.front().module,
                                     decisions.front().reason),
                   "recipe: found no linear among {} that it quantizes, "
                   "expected at least one",
                   linears.size());
  }
  return decisions;
}

}  // namespace nibble::quant
