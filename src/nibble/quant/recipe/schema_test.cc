// docs/recipe.schema.json says what the parser does.
#include <algorithm>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/quant/recipe/keys.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

const std::string kPath =
    std::string(NIBBLE_SOURCE_DIR) + "/docs/recipe.schema.json";

// The part of JSON Schema that the recipe's schema uses. Returns the path of
// the first contradiction, or "".
std::string contradiction(const json& schema,
                          const json& value,
                          const std::string& path);

std::string type_contradiction(const json& schema,
                               const json& value,
                               const std::string& path) {
  const auto type = schema.value("type", std::string());
  const bool fits = type.empty() || (type == "object" && value.is_object()) ||
                    (type == "array" && value.is_array()) ||
                    (type == "string" && value.is_string()) ||
                    (type == "boolean" && value.is_boolean());
  if (!fits) {
    return path + ": type";
  }
  if (schema.contains("const") && schema["const"] != value) {
    return path + ": const";
  }
  if (schema.contains("enum")) {
    const json& words = schema["enum"];
    if (std::find(words.begin(), words.end(), value) == words.end()) {
      return path + ": enum";
    }
  }
  return "";
}

std::string object_contradiction(const json& schema,
                                 const json& value,
                                 const std::string& path) {
  for (const json& key : schema.value("required", json::array())) {
    if (!value.contains(key.get<std::string>())) {
      return path + ": required " + key.get<std::string>();
    }
  }
  const json properties = schema.value("properties", json::object());
  for (const auto& [key, item] : value.items()) {
    if (properties.contains(key)) {
      const std::string inner =
          contradiction(properties[key], item, path + "." + key);
      if (!inner.empty()) {
        return inner;
      }
    } else if (schema.contains("additionalProperties")) {
      return path + ": unknown " + key;
    }
    if (schema.contains("propertyNames")) {
      const std::string inner =
          contradiction(schema["propertyNames"], key, path + "." + key);
      if (!inner.empty()) {
        return inner;
      }
    }
  }
  return "";
}

std::string contradiction(const json& schema,
                          const json& value,
                          const std::string& path) {
  std::string found = type_contradiction(schema, value, path);
  if (found.empty() && value.is_object()) {
    found = object_contradiction(schema, value, path);
  }
  if (found.empty() && value.is_array()) {
    if (value.size() < schema.value("minItems", std::size_t{0})) {
      found = path + ": minItems";
    }
    for (std::size_t i = 0; found.empty() && i < value.size(); ++i) {
      if (schema.contains("items")) {
        found = contradiction(
            schema["items"], value[i], path + "[" + std::to_string(i) + "]");
      }
    }
  }
  if (found.empty() && value.is_string() &&
      value.get<std::string>().size() <
          schema.value("minLength", std::size_t{0})) {
    found = path + ": minLength";
  }
  if (found.empty() && schema.contains("oneOf")) {
    const auto& choices = schema["oneOf"];
    const auto count =
        std::count_if(choices.begin(), choices.end(), [&](const json& choice) {
          return contradiction(choice, value, path).empty();
        });
    found = count == 1 ? "" : path + ": oneOf";
  }
  if (found.empty() && schema.contains("if") &&
      contradiction(schema["if"], value, path).empty()) {
    found = contradiction(schema["then"], value, path);
  }
  return found;
}

// To renew the file: NIBBLE_UPDATE_DOCS=1 nibble_quant_recipe_test.
TEST(RecipeSchema, ThePublishedFileIsWhatTheParsersTablesGive) {
  const std::string wanted = recipe_schema().dump(2) + "\n";
  if (std::getenv("NIBBLE_UPDATE_DOCS") != nullptr) {
    write_file_atomically(kPath, wanted);
  }
  EXPECT_EQ(read_text_file(kPath), wanted)
      << "renew it: NIBBLE_UPDATE_DOCS=1 nibble_quant_recipe_test";
}

TEST(RecipeSchema, AcceptsEveryBuiltinAndEveryCanonicalForm) {
  const json schema = recipe_schema();
  for (const BuiltinRecipe& builtin : builtin_recipes()) {
    const json recipe = json::parse(builtin.json);
    EXPECT_EQ(contradiction(schema, recipe, "recipe"), "") << builtin.name;
    EXPECT_EQ(
        contradiction(schema, to_json(load_recipe(builtin.name)), "recipe"), "")
        << builtin.name;
  }
}

// The schema and the parser refuse the same recipes.
TEST(RecipeSchema, RefusesWhatTheParserRefuses) {
  const json schema = recipe_schema();
  const json good = json::parse(builtin_recipes()[0].json);
  const auto refused = [&](const json& recipe) {
    EXPECT_NE(contradiction(schema, recipe, "recipe"), "") << recipe;
    EXPECT_THROW(static_cast<void>(parse_recipe(recipe)), Error) << recipe;
  };
  for (const char* key : {"version", "rules"}) {
    json recipe = good;
    recipe.erase(key);
    refused(recipe);
  }
  for (const char* key : {"match", "scheme"}) {
    json recipe = good;
    recipe["rules"][0].erase(key);
    refused(recipe);
  }
  const json wrong_fields = json::parse(R"({
      "version": 2, "name": 1, "description": 1, "defaults": "yes",
      "rules": [], "unknown": 1})");
  for (const auto& [key, value] : wrong_fields.items()) {
    json recipe = good;
    recipe[key] = value;
    refused(recipe);
  }
  const json wrong_rule = json::parse(R"({
      "match": [], "scheme": "int44", "symmetric": 1, "group": 100,
      "activations": "no", "algorithm": "best", "on_indivisible": "no",
      "unknown": 1})");
  for (const auto& [key, value] : wrong_rule.items()) {
    json recipe = good;
    recipe["rules"][0][key] = value;
    refused(recipe);
  }
  json keeps = good;
  keeps["rules"][0] = {{"match", "a"}, {"scheme", "keep"}, {"group", 64}};
  refused(keeps);
}

}  // namespace
}  // namespace nibble::quant
