#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nibble/model/family.h"
#include "nibble/quant/recipe/recipe.h"

namespace nibble::quant {

// A linear of the model or its embedding table, as its family's table and the
// headers tell it. The experts of a stacked tensor are listed one by one under
// the names of their own.
struct LinearModule {
  std::string module;  // "model.layers.0.mlp.gate_proj"
  model::Role role = model::Role::kOther;
  std::int64_t rows = 0;     // out
  std::int64_t columns = 0;  // in
};

// What a recipe makes of one linear.
struct Decision {
  std::optional<LayerSpec> spec;  // nothing = stays dense
  std::string algorithm;          // empty when dense
  // Why it stays dense, or what quantizes it: for plans and receipts.
  std::string reason;
  std::optional<std::size_t> rule;  // nothing: the keep list, or no rule fits
};

// Decides every linear, in the order given. The family's keep list comes
// before the rules when recipe.defaults, but for rules with force; then the
// first rule that fits wins; a linear that no rule fits stays dense.
// scale_dtype of the specs is left for the caller, who knows the dtype of each
// weight.
//
// kBadRecipe, with a suggestion: a pattern that fits no linear; a rule that
// decides nothing (dead), unless it is optional; a group that does not divide,
// where the rule says error; members of a fused set, or experts of one layer,
// that are treated differently; a recipe that quantizes nothing at all.
// kUnsupported: static activations (their scales come from calibration), and
// what a scheme refuses for a shape.
[[nodiscard]] std::vector<Decision> resolve(
    const Recipe& recipe,
    const model::Family& family,
    std::span<const LinearModule> linears);

}  // namespace nibble::quant
