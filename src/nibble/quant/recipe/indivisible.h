#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nibble/quant/recipe/recipe.h"
#include "nibble/quant/recipe/resolve.h"
#include "nibble/quant/recipe/siblings.h"

namespace nibble::quant {

// The largest group below `group` that a recipe may name and that divides
// columns, or nothing.
[[nodiscard]] std::optional<std::int64_t> smaller_group(std::int64_t group,
                                                        std::int64_t columns);

// Applies each rule's on_indivisible to the linears whose columns its group
// does not divide. Siblings change together: all take the smallest group that
// one of them needs, or all are kept. kBadRecipe, with a group that works,
// where the rule says error or no smaller group divides.
void apply_indivisible(const Recipe& recipe,
                       std::span<const LinearModule> linears,
                       std::span<const SiblingSet> siblings,
                       std::vector<Decision>& decisions);

}  // namespace nibble::quant
