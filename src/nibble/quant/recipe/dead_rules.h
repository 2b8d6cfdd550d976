#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nibble/quant/recipe/pattern.h"
#include "nibble/quant/recipe/recipe.h"
#include "nibble/quant/recipe/resolve.h"

namespace nibble::quant {

// Whether a pattern decides a module. An embedding table is a lookup, no
// product: it is reached only by a pattern that ends in its very name
// ("model.embed_tokens", "*.embed_tokens"), so that "*" means linears.
[[nodiscard]] bool reaches(const Pattern& pattern, const LinearModule& linear);

// The patterns of a recipe's rules. Recipes made from other tools' configs name
// thousands of modules one by one, so exact names are looked up, not compared.
class RulePatterns {
 public:
  // kBadRecipe for a malformed pattern. recipe must outlive it.
  explicit RulePatterns(const Recipe& recipe);

  // The first of the rules (those with force alone, if only_forced) that
  // reaches a module, or nothing.
  [[nodiscard]] std::optional<std::size_t> first_rule(
      const LinearModule& linear, bool only_forced) const;
  // Whether one of a rule's patterns reaches it.
  [[nodiscard]] bool reaches_any(std::size_t rule,
                                 const LinearModule& linear) const;

  [[nodiscard]] std::span<const Pattern> of(std::size_t rule) const {
    return patterns_[rule];
  }

  [[nodiscard]] std::size_t size() const { return patterns_.size(); }

 private:
  [[nodiscard]] bool counts(std::size_t rule, bool only_forced) const {
    return !only_forced || recipe_.rules[rule].force;
  }

  const Recipe& recipe_;
  std::vector<std::vector<Pattern>> patterns_;
  // Rules that name a module, ascending.
  std::unordered_map<std::string, std::vector<std::size_t>> exact_;
  // Every other pattern with its rule, in order: {rule, index in it}.
  std::vector<std::pair<std::size_t, std::size_t>> wild_;
};

// kBadRecipe for a pattern that fits no linear (with the nearest name), and
// for a rule that decides none of them (with who decided them before it).
// Optional rules may be dead.
void check_rules_live(const Recipe& recipe,
                      const RulePatterns& rules,
                      std::span<const LinearModule> linears,
                      std::span<const Decision> decisions);

}  // namespace nibble::quant
