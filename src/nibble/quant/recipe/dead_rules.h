#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "nibble/quant/recipe/pattern.h"
#include "nibble/quant/recipe/recipe.h"
#include "nibble/quant/recipe/resolve.h"

namespace nibble::quant {

// Patterns of each rule, compiled. kBadRecipe for a malformed one.
[[nodiscard]] std::vector<std::vector<Pattern>> compile_patterns(
    const Recipe& recipe);

// Whether a pattern decides a module. An embedding table is a lookup, no
// product: it is reached only by a pattern that ends in its very name
// ("model.embed_tokens", "*.embed_tokens"), so that "*" means linears.
[[nodiscard]] bool reaches(const Pattern& pattern, const LinearModule& linear);

// The first of the rules (those with force alone, if only_forced) that reaches
// a module, or nothing.
[[nodiscard]] std::optional<std::size_t> first_rule(
    const Recipe& recipe,
    std::span<const std::vector<Pattern>> rules,
    const LinearModule& linear,
    bool only_forced);

// kBadRecipe for a pattern that fits no linear (with the nearest name), and
// for a rule that decides none of them (with who decided them before it).
// Optional rules may be dead. rules: the patterns of recipe.
void check_rules_live(const Recipe& recipe,
                      std::span<const std::vector<Pattern>> rules,
                      std::span<const LinearModule> linears,
                      std::span<const Decision> decisions);

}  // namespace nibble::quant
