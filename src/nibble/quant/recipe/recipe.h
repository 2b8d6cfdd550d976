#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/quant/core/number_spec.h"

namespace nibble::quant {

// kPad: the layout pads with zero columns, as gpt-fast's does.
enum class OnIndivisible { kError, kSmaller, kKeep, kPad };

// One rule: what to do with the weights that a pattern fits. See
// docs/recipes.md and docs/recipe.schema.json.
struct Rule {
  std::vector<std::string> match;  // exact name, glob, or "re:..."
  std::optional<LayerSpec> spec;   // nothing = keep dense
  std::string algorithm = "rtn";
  OnIndivisible on_indivisible = OnIndivisible::kError;
  // Whether it may fit or decide nothing in a model: for recipes that serve
  // several families.
  bool optional = false;
  // Whether it also decides what the family's keep list would keep.
  bool force = false;
};

// What is quantized and how: data, not code. The first rule that fits wins.
struct Recipe {
  std::string name;
  std::string description;
  bool defaults = true;        // the family's keep list comes before the rules
  std::optional<DType> dtype;  // that the source's weights must have
  std::vector<Rule> rules;
};

// A recipe from a built-in name, a file, or JSON text. kBadRecipe says where
// the text is wrong and suggests the nearest right word.
// The JSON may also be torchchat's or a compressed-tensors quantization_config:
// see foreign.h.
[[nodiscard]] Recipe load_recipe(std::string_view name_file_or_json);
[[nodiscard]] Recipe parse_recipe(const nlohmann::json& json);
// The same recipe as JSON, every default written out: the key of caches.
[[nodiscard]] nlohmann::json to_json(const Recipe& recipe);

struct BuiltinRecipe {
  std::string_view name;
  std::string_view description;
  std::string_view json;
};

[[nodiscard]] std::span<const BuiltinRecipe> builtin_recipes();

// Whether a pattern of a rule fits a module name: "re:" patterns must match
// the whole name, others are globs (* and ?) over it. kBadRecipe for a
// malformed pattern.
[[nodiscard]] bool pattern_fits(std::string_view pattern,
                                std::string_view module);

}  // namespace nibble::quant
