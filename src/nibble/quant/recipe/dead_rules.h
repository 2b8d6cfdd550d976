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

// The first rule that fits a module, or nothing.
[[nodiscard]] std::optional<std::size_t> first_rule(
    std::span<const std::vector<Pattern>> rules, std::string_view module);

// kBadRecipe for a pattern that fits no linear (with the nearest name), and
// for a rule that decides none of them (with who decided them before it).
// Optional rules may be dead. rules: the patterns of recipe.
void check_rules_live(const Recipe& recipe,
                      std::span<const std::vector<Pattern>> rules,
                      std::span<const LinearModule> linears,
                      std::span<const Decision> decisions);

}  // namespace nibble::quant
