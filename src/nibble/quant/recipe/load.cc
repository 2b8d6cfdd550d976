#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/base/units.h"
#include "nibble/quant/recipe/foreign.h"
#include "nibble/quant/recipe/recipe.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxBytes = 4 << 20;

// A key given twice is a mistake that the JSON parser would hide: it keeps the
// last. The text is valid JSON already.
void refuse_double_keys(std::string_view text) {
  std::vector<std::set<std::string>> open;
  const auto look = [&open](
                        int /*depth*/, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) {
      open.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      open.pop_back();
    } else if (event == json::parse_event_t::key) {
      NIBBLE_CHECK(open.back().insert(value.get<std::string>()).second,
                   kBadRecipe,
                   "found the key '{}' twice in one object, expected it once",
                   printable(value.get_ref<const std::string&>()));
    }
    return true;
  };
  [[maybe_unused]] const json parsed =
      json::parse(text.begin(), text.end(), look);
}

Recipe parse_text(std::string_view text, const std::string& where) {
  NIBBLE_CHECK(text.size() <= kMaxBytes,
               kBadRecipe,
               "{}: found {} bytes, expected at most {}",
               where,
               text.size(),
               kMaxBytes);
  json value;
  try {
    value = parse_json(text, where);
  } catch (const Error& error) {
    throw Error(ErrorCode::kBadRecipe, error.what(), error.hint());
  }
  return with_context(where, [&] {
    refuse_double_keys(text);
    const std::optional<json> translated = translate_foreign_recipe(value);
    return parse_recipe(translated ? *translated : value);
  });
}

[[noreturn]] void unknown_name(std::string_view name) {
  std::vector<std::string_view> known;
  std::string list;
  for (const BuiltinRecipe& recipe : builtin_recipes()) {
    known.push_back(recipe.name);
    list += list.empty() ? "" : ", ";
    list += recipe.name;
  }
  const std::string near = nearest_word(name, known);
  fail_with_hint(ErrorCode::kBadRecipe,
                 near.empty() ? "a recipe of your own is given as a path that "
                                "has a / in it or ends in .json, or as JSON "
                                "text that begins with {"
                              : "did you mean " + near + "?",
                 "recipe: found '{}', expected one of {}",
                 printable(name),
                 list);
}

}  // namespace

// The three forms are told apart by their text alone, never by looking whether
// a file exists: the same command means the same in every directory.
Recipe load_recipe(std::string_view source) {
  const std::size_t start = source.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && source[start] == '{') {
    return parse_text(source, "recipe");
  }
  if (source.find('/') != std::string_view::npos || source.ends_with(".json")) {
    const std::filesystem::path path{std::string(source)};
    Recipe recipe = parse_text(read_text_file(path, kMaxBytes),
                               fmt::format("recipe {}", printable(source)));
    if (recipe.name.empty()) {
      recipe.name = path.stem().string();
    }
    return recipe;
  }
  for (const BuiltinRecipe& recipe : builtin_recipes()) {
    if (recipe.name == source) {
      return parse_text(recipe.json, fmt::format("recipe {}", source));
    }
  }
  unknown_name(source);
}

}  // namespace nibble::quant
