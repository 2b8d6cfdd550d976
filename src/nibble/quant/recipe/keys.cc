#include "nibble/quant/recipe/keys.h"

#include <nlohmann/json.hpp>

#include "nibble/quant/core/registry.h"

namespace nibble::quant {

std::span<const RecipeKey> recipe_keys() {
  static constexpr std::array<RecipeKey, 6> kKeys = {{
      {"version", "version of the recipe language: 1", true},
      {"name", "shown by `nibble recipes` and used to name results", false},
      {"description", "one line about the recipe", false},
      {"defaults",
       "whether the model family's keep list comes before the rules; true when "
       "absent",
       false},
      {"dtype",
       "type that the source's weights must have; any when absent",
       false},
      {"rules", "the first rule that fits a weight decides it", true},
  }};
  return kKeys;
}

std::span<const RecipeKey> rule_keys() {
  static constexpr std::array<RecipeKey, 9> kKeys = {{
      {"match",
       "names of modules: exact, a glob with * and ?, or re: and a regular "
       "expression over the whole name; or a list of these",
       true},
      {"scheme", "what the weights become; keep leaves them as they are", true},
      {"symmetric", "false adds zero points; true when absent", false},
      {"group",
       "columns that share a scale, or channel, tensor, or a block; when "
       "absent 128 for schemes below 8 bits and channel for others",
       false},
      {"activations",
       "how inputs are quantized when the layer runs; none when absent",
       false},
      {"algorithm", "how codes are chosen; rtn when absent", false},
      {"on_indivisible",
       "what to do with a weight whose columns the group does not divide; "
       "error when absent",
       false},
      {"optional",
       "true: no error when the rule or one of its patterns fits nothing in a "
       "model; false when absent",
       false},
      {"force",
       "true: the rule also decides weights on the family's keep list; false "
       "when absent",
       false},
  }};
  return kKeys;
}

std::vector<std::string_view> scheme_words() {
  std::vector<std::string_view> words;
  for (const Scheme* scheme : schemes()) {
    const auto names = scheme->recipe_names();
    words.insert(words.end(), names.begin(), names.end());
  }
  words.emplace_back("keep");
  return words;
}

std::vector<std::string_view> algorithm_words() {
  std::vector<std::string_view> words;
  for (const Algorithm* algorithm : algorithms()) {
    words.push_back(algorithm->name());
  }
  return words;
}

namespace {

using nlohmann::json;

json object_schema(std::span<const RecipeKey> keys, const json& types) {
  json properties = json::object();
  json required = json::array();
  for (const RecipeKey& key : keys) {
    json property = types.at(std::string(key.name));
    property["description"] = key.meaning;
    properties[std::string(key.name)] = std::move(property);
    if (key.required) {
      required.push_back(key.name);
    }
  }
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", false}};
}

json group_schema() {
  json words = kGroups;
  for (const std::string_view word : kGroupWords) {
    words.push_back(word);
  }
  words.push_back(kBlock);
  return {{"enum", std::move(words)}};
}

}  // namespace

json recipe_schema() {
  const json name = {{"type", "string"}, {"minLength", 1}};
  json rule = object_schema(
      rule_keys(),
      {{"match",
        {{"oneOf",
          {name, {{"type", "array"}, {"minItems", 1}, {"items", name}}}}}},
       {"scheme", {{"enum", scheme_words()}}},
       {"symmetric", {{"type", "boolean"}, {"default", true}}},
       {"group", group_schema()},
       {"activations", {{"enum", kActivations}, {"default", "none"}}},
       {"algorithm", {{"enum", algorithm_words()}, {"default", "rtn"}}},
       {"on_indivisible", {{"enum", kOnIndivisible}, {"default", "error"}}},
       {"optional", {{"type", "boolean"}, {"default", false}}},
       {"force", {{"type", "boolean"}, {"default", false}}}});
  // A kept weight has no group, activations and so on.
  rule["if"] = {{"properties", {{"scheme", {{"const", "keep"}}}}}};
  rule["then"] = {
      {"propertyNames", {{"enum", {"match", "scheme", "optional"}}}}};
  json schema = object_schema(
      recipe_keys(),
      {{"version", {{"const", 1}}},
       {"name", {{"type", "string"}}},
       {"description", {{"type", "string"}}},
       {"defaults", {{"type", "boolean"}, {"default", true}}},
       {"dtype", {{"enum", kDtypes}}},
       {"rules",
        {{"type", "array"}, {"minItems", 1}, {"items", std::move(rule)}}}});
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = "nibble recipe";
  return schema;
}

}  // namespace nibble::quant
