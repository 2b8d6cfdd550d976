#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/quant/recipe/recipe.h"

namespace nibble::quant {

// The language of recipes as data. The parser, the writer and the published
// schema (docs/recipe.schema.json) all read these tables.

struct RecipeKey {
  std::string_view name;
  std::string_view meaning;
  bool required = false;
};

[[nodiscard]] std::span<const RecipeKey> recipe_keys();
[[nodiscard]] std::span<const RecipeKey> rule_keys();

// Columns that may share a scale, rising.
inline constexpr std::array<std::int64_t, 4> kGroups = {32, 64, 128, 256};
inline constexpr std::array<std::string_view, 2> kGroupWords = {"channel",
                                                                "tensor"};
inline constexpr std::array<std::int64_t, 2> kBlock = {128, 128};
inline constexpr std::array<std::string_view, 3> kActivations = {
    "none", "dynamic", "static"};
inline constexpr std::array<std::string_view, 4> kOnIndivisible = {
    "error", "smaller", "keep", "pad"};  // in the order of OnIndivisible

inline constexpr std::array<std::string_view, 3> kDtypes = {
    "bf16", "f16", "f32"};

// "keep" and every scheme of the registry; every algorithm of the registry.
[[nodiscard]] std::vector<std::string_view> scheme_words();
[[nodiscard]] std::vector<std::string_view> algorithm_words();

// JSON Schema (2020-12) of a recipe: what stands in docs/recipe.schema.json.
[[nodiscard]] nlohmann::json recipe_schema();

}  // namespace nibble::quant
