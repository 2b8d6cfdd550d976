#include "nibble/quant/recipe/indivisible.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/quant/recipe/keys.h"

namespace nibble::quant {
namespace {

bool divides(const LayerSpec& spec, std::int64_t columns) {
  return spec.weight.grain != Grain::kGroup || columns % spec.weight.group == 0;
}

// The largest group of the language that divides every linear of a rule.
std::optional<std::int64_t> group_for_all(std::size_t rule,
                                          std::span<const LinearModule> linears,
                                          std::span<const Decision> decisions) {
  for (auto group = kGroups.rbegin(); group != kGroups.rend(); ++group) {
    bool all = true;
    for (std::size_t i = 0; i < linears.size(); ++i) {
      all = all && (decisions[i].rule != rule || !decisions[i].spec ||
                    linears[i].columns % *group == 0);
    }
    if (all) {
      return *group;
    }
  }
  return std::nullopt;
}

// The built-in recipe that is this rule alone with another group, or "".
std::string builtin_with(Rule rule, std::int64_t group) {
  rule.spec->weight.group = group;
  for (const BuiltinRecipe& builtin : builtin_recipes()) {
    const Recipe recipe = parse_recipe(nlohmann::json::parse(builtin.json));
    if (recipe.rules.size() == 1 && recipe.rules[0].spec == rule.spec &&
        recipe.rules[0].match == rule.match) {
      return fmt::format(" (the built-in recipe {})", builtin.name);
    }
  }
  return {};
}

std::string hint_for(const Recipe& recipe,
                     std::size_t rule,
                     std::span<const LinearModule> linears,
                     std::span<const Decision> decisions) {
  const auto group = group_for_all(rule, linears, decisions);
  const std::string others =
      "\"on_indivisible\": \"smaller\" or \"keep\" for these linears alone";
  if (!group) {
    return "use \"group\": \"channel\", or " + others;
  }
  return fmt::format("use \"group\": {}{}, which divides them all, or {}",
                     *group,
                     builtin_with(recipe.rules[rule], *group),
                     others);
}

[[noreturn]] void refuse(const Recipe& recipe,
                         std::size_t rule,
                         const std::vector<std::size_t>& offenders,
                         std::span<const LinearModule> linears,
                         std::span<const Decision> decisions) {
  constexpr std::size_t kShown = 4;
  std::string names;
  for (std::size_t i = 0; i < std::min(kShown, offenders.size()); ++i) {
    const LinearModule& linear = linears[offenders[i]];
    names += fmt::format("{}{} has {} columns",
                         names.empty() ? "" : ", ",
                         linear.module,
                         linear.columns);
  }
  fail_with_hint(ErrorCode::kBadRecipe,
                 hint_for(recipe, rule, linears, decisions),
                 "rules[{}]: found {} linears whose columns the group of {} "
                 "does not divide ({}{}), expected none",
                 rule,
                 offenders.size(),
                 recipe.rules[rule].spec->weight.group,
                 names,
                 offenders.size() > kShown ? ", ..." : "");
}

// One linear by itself.
void apply_one(const Recipe& recipe,
               const LinearModule& linear,
               Decision& decision) {
  const Rule& rule = recipe.rules[*decision.rule];
  const std::int64_t group = decision.spec->weight.group;
  if (rule.on_indivisible == OnIndivisible::kKeep) {
    decision.spec.reset();
    decision.algorithm.clear();
    decision.reason = fmt::format(
        "{} columns are no multiple of the group of {} "
        "(rules[{}], on_indivisible keep)",
        linear.columns,
        group,
        *decision.rule);
    return;
  }
  const auto smaller = smaller_group(group, linear.columns);
  if (!smaller) {
    fail_with_hint(ErrorCode::kBadRecipe,
                   "set \"on_indivisible\": \"keep\", or use \"group\": "
                   "\"channel\"",
                   "rules[{}]: found {} columns in {}, expected a multiple of "
                   "a group of at least {}",
                   *decision.rule,
                   linear.columns,
                   linear.module,
                   kGroups.front());
  }
  decision.spec->weight.group = *smaller;
  decision.reason += fmt::format(
      ", group {} instead of {} for {} columns (on_indivisible "
      "smaller)",
      *smaller,
      group,
      linear.columns);
}

// Siblings of one rule follow the one that had to change most.
void align(const SiblingSet& set,
           std::span<const LinearModule> linears,
           std::vector<Decision>& decisions) {
  for (const std::size_t leader : set.members) {
    if (!decisions[leader].rule) {
      continue;
    }
    for (const std::size_t member : set.members) {
      Decision& decision = decisions[member];
      if (decision.rule != decisions[leader].rule || !decision.spec) {
        continue;
      }
      const auto& wanted = decisions[leader].spec;
      if (!wanted) {
        decision.spec.reset();
        decision.algorithm.clear();
        decision.reason =
            fmt::format("its sibling {} is kept", linears[leader].module);
      } else if (wanted->weight.group < decision.spec->weight.group) {
        decision.spec->weight.group = wanted->weight.group;
        decision.reason += fmt::format(", group {} as its sibling {}",
                                       wanted->weight.group,
                                       linears[leader].module);
      }
    }
  }
}

}  // namespace

std::optional<std::int64_t> smaller_group(std::int64_t group,
                                          std::int64_t columns) {
  for (auto each = kGroups.rbegin(); each != kGroups.rend(); ++each) {
    if (*each < group && columns % *each == 0) {
      return *each;
    }
  }
  return std::nullopt;
}

void apply_indivisible(const Recipe& recipe,
                       std::span<const LinearModule> linears,
                       std::span<const SiblingSet> siblings,
                       std::vector<Decision>& decisions) {
  std::vector<std::vector<std::size_t>> offenders(recipe.rules.size());
  for (std::size_t i = 0; i < linears.size(); ++i) {
    const Decision& decision = decisions[i];
    if (decision.spec && !divides(*decision.spec, linears[i].columns) &&
        recipe.rules[*decision.rule].on_indivisible != OnIndivisible::kPad) {
      offenders[*decision.rule].push_back(i);
    }
  }
  for (std::size_t rule = 0; rule < offenders.size(); ++rule) {
    if (offenders[rule].empty()) {
      continue;
    }
    if (recipe.rules[rule].on_indivisible == OnIndivisible::kError) {
      refuse(recipe, rule, offenders[rule], linears, decisions);
    }
    for (const std::size_t i : offenders[rule]) {
      apply_one(recipe, linears[i], decisions[i]);
    }
  }
  for (const SiblingSet& set : siblings) {
    align(set, linears, decisions);
  }
}

}  // namespace nibble::quant
