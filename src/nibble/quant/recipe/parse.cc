#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/units.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/recipe/keys.h"
#include "nibble/quant/recipe/pattern.h"
#include "nibble/quant/recipe/recipe.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxRules = 10'000;

std::string shown(const json& value) {
  return printable(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

template <typename Words>
std::string listed(const Words& words) {
  std::string text;
  for (const auto& word : words) {
    text += text.empty() ? "" : ", ";
    text += word;
  }
  return text;
}

std::string suggestion(const std::string& near) {
  return near.empty() ? near : "did you mean " + near + "?";
}

[[noreturn]] void wrong_value(const std::string& where,
                              const json& found,
                              std::string_view expected,
                              const std::string& hint = {}) {
  fail_with_hint(ErrorCode::kBadRecipe,
                 hint,
                 "{}: found {}, expected {}",
                 where,
                 shown(found),
                 expected);
}

std::vector<std::string_view> names_of(std::span<const RecipeKey> keys) {
  std::vector<std::string_view> names;
  for (const RecipeKey& key : keys) {
    names.push_back(key.name);
  }
  return names;
}

// The meanings of kDtypes.
constexpr std::array kDtypeOf = {DType::kBF16, DType::kF16, DType::kF32};

bool is_in(std::string_view word, const std::vector<std::string_view>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Refuses unknown and missing keys. other_level: keys of the object above or
// below, so that one at the wrong level can be told.
void check_keys(const json& object,
                const std::string& where,
                std::span<const RecipeKey> keys,
                std::span<const RecipeKey> other_keys,
                std::string_view other_level) {
  NIBBLE_CHECK(object.is_object(),
               kBadRecipe,
               "{}: found a JSON {}, expected an object",
               where,
               object.type_name());
  const std::vector<std::string_view> known = names_of(keys);
  for (const auto& [key, value] : object.items()) {
    if (is_in(key, known)) {
      continue;
    }
    std::string hint = is_in(key, names_of(other_keys))
                           ? fmt::format("{} belongs {}", key, other_level)
                           : suggestion(nearest_word(key, known));
    fail_with_hint(ErrorCode::kBadRecipe,
                   hint,
                   "{}: found the unknown key '{}', expected one of {}",
                   where,
                   printable(key),
                   listed(known));
  }
  for (const RecipeKey& key : keys) {
    if (key.required && !object.contains(std::string(key.name))) {
      fail_with_hint(ErrorCode::kBadRecipe,
                     key.name == "version" ? "add \"version\": 1" : "",
                     "{}: found no key {}, expected it ({})",
                     where,
                     key.name,
                     key.meaning);
    }
  }
}

const json* find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string path(const std::string& where, std::string_view key) {
  return where.empty() ? std::string(key) : fmt::format("{}.{}", where, key);
}

bool read_bool(const json& object,
               const std::string& where,
               const char* key,
               bool absent) {
  const json* value = find(object, key);
  if (value == nullptr) {
    return absent;
  }
  if (!value->is_boolean()) {
    wrong_value(path(where, key), *value, "true or false");
  }
  return value->get<bool>();
}

std::string read_text(const json& object, const char* key) {
  const json* value = find(object, key);
  if (value == nullptr) {
    return {};
  }
  if (!value->is_string()) {
    wrong_value(key, *value, "a string");
  }
  return value->get<std::string>();
}

// One of words, with the nearest as a hint otherwise.
template <typename Words>
std::string read_word(const json& object,
                      const std::string& where,
                      const char* key,
                      const Words& words,
                      std::string_view absent) {
  const json* value = find(object, key);
  if (value == nullptr) {
    return std::string(absent);
  }
  if (!value->is_string()) {
    wrong_value(path(where, key), *value, listed(words));
  }
  const auto& word = value->get_ref<const std::string&>();
  if (std::find(words.begin(), words.end(), word) == words.end()) {
    wrong_value(path(where, key),
                *value,
                "one of " + listed(words),
                suggestion(nearest_word(word, words)));
  }
  return word;
}

std::vector<std::string> read_match(const json& rule,
                                    const std::string& where) {
  const json& value = rule.at("match");
  const std::string place = path(where, "match");
  std::vector<std::string> patterns;
  const auto add = [&](const json& item) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty()) {
      wrong_value(place, value, "a pattern or a list of patterns");
    }
    patterns.push_back(item.get<std::string>());
    with_context(place, [&] { static_cast<void>(Pattern(patterns.back())); });
  };
  if (!value.is_array()) {
    add(value);
    return patterns;
  }
  for (const json& item : value) {
    add(item);
  }
  if (patterns.empty()) {
    wrong_value(place, value, "at least one pattern");
  }
  return patterns;
}

std::string nearest_group(const json& value) {
  if (!value.is_number_integer()) {
    return value.is_string()
               ? nearest_word(value.get_ref<const std::string&>(), kGroupWords)
               : std::string();
  }
  const auto wanted = value.get<std::int64_t>();
  // Distances in double: the number may be anything.
  const auto far = [wanted](std::int64_t group) {
    return std::abs(static_cast<double>(group) - static_cast<double>(wanted));
  };
  return std::to_string(
      *std::min_element(kGroups.begin(), kGroups.end(), [&](auto a, auto b) {
        return far(a) < far(b);
      }));
}

void read_group(const json& rule, const std::string& where, NumberSpec& spec) {
  const json* value = find(rule, "group");
  if (value == nullptr) {
    return;  // what the scheme means by itself
  }
  spec.group = 0;
  if (*value == "channel") {
    spec.grain = Grain::kChannel;
  } else if (*value == "tensor") {
    spec.grain = Grain::kTensor;
  } else if (*value == json(kBlock)) {
    spec.grain = Grain::kBlock;
    spec.block_rows = kBlock[0];
    spec.block_columns = kBlock[1];
  } else if (value->is_number_integer() &&
             std::find(kGroups.begin(), kGroups.end(), *value) !=
                 kGroups.end()) {
    spec.grain = Grain::kGroup;
    spec.group = value->get<std::int64_t>();
  } else {
    wrong_value(path(where, "group"),
                *value,
                "32, 64, 128, 256, \"channel\", \"tensor\" or [128, 128]",
                suggestion(nearest_group(*value)));
  }
}

// Inputs of one stored scale are those that go with dynamic ones otherwise.
std::optional<NumberSpec> input_of(const std::string& activations,
                                   const Scheme& scheme,
                                   const NumberSpec& weight) {
  if (activations == "none") {
    return std::nullopt;
  }
  NumberSpec input = scheme.dynamic_input(weight);
  if (activations == "static") {
    input.grain = Grain::kTensor;
    input.group = 0;
  }
  return input;
}

// A scheme says itself which grains and inputs it has. It is asked about a
// shape that every group divides, so what it refuses is the rule's fault.
void check_combination(const Scheme& scheme,
                       const LayerSpec& spec,
                       const std::string& where) {
  constexpr std::int64_t kAnySize = 4096;
  try {
    scheme.check(spec, kAnySize, kAnySize);
  } catch (const Error& error) {
    throw Error(ErrorCode::kBadRecipe,
                fmt::format("{}: {}", where, error.what()),
                error.hint());
  }
}

Rule read_rule(const json& object, const std::string& where) {
  check_keys(object, where, rule_keys(), recipe_keys(), "beside rules");
  Rule rule;
  rule.match = read_match(object, where);
  rule.optional = read_bool(object, where, "optional", false);
  const std::string name =
      read_word(object, where, "scheme", scheme_words(), "");
  if (name == "keep") {
    for (const auto& [key, value] : object.items()) {
      NIBBLE_CHECK(key == "match" || key == "scheme" || key == "optional",
                   kBadRecipe,
                   "{}: found the key {} in a rule that keeps, expected match, "
                   "scheme and optional alone",
                   where,
                   key);
    }
    return rule;
  }
  const Scheme& scheme = scheme_named(name);
  LayerSpec spec;
  spec.weight = scheme.spec_named(name);
  spec.weight.symmetric = read_bool(object, where, "symmetric", true);
  read_group(object, where, spec.weight);
  spec.input =
      input_of(read_word(object, where, "activations", kActivations, "none"),
               scheme,
               spec.weight);
  check_combination(scheme, spec, where);
  rule.spec = spec;
  rule.algorithm =
      read_word(object, where, "algorithm", algorithm_words(), "rtn");
  const std::string word =
      read_word(object, where, "on_indivisible", kOnIndivisible, "error");
  const auto at = std::find(kOnIndivisible.begin(), kOnIndivisible.end(), word);
  rule.on_indivisible = static_cast<OnIndivisible>(at - kOnIndivisible.begin());
  rule.force = read_bool(object, where, "force", false);
  return rule;
}

json group_json(const NumberSpec& spec) {
  switch (spec.grain) {
    case Grain::kGroup:
      return spec.group;
    case Grain::kBlock:
      return {spec.block_rows, spec.block_columns};
    default:
      return grain_name(spec.grain);
  }
}

json rule_json(const Rule& rule) {
  if (!rule.spec) {
    return {
        {"match", rule.match}, {"scheme", "keep"}, {"optional", rule.optional}};
  }
  std::string_view activations = "none";
  if (rule.spec->input) {
    activations =
        rule.spec->input->grain == Grain::kTensor ? "static" : "dynamic";
  }
  return {{"match", rule.match},
          {"scheme", rule.spec->weight.scheme},
          {"symmetric", rule.spec->weight.symmetric},
          {"group", group_json(rule.spec->weight)},
          {"activations", activations},
          {"algorithm", rule.algorithm},
          {"on_indivisible",
           kOnIndivisible[static_cast<std::size_t>(rule.on_indivisible)]},
          {"optional", rule.optional},
          {"force", rule.force}};
}

}  // namespace

Recipe parse_recipe(const json& object) {
  check_keys(object, "recipe", recipe_keys(), rule_keys(), "into a rule");
  const json& version = object.at("version");
  if (version != 1 || !version.is_number_integer()) {
    wrong_value("version",
                version,
                "1",
                "this program knows version 1 of the recipe language");
  }
  Recipe recipe;
  recipe.name = read_text(object, "name");
  recipe.description = read_text(object, "description");
  recipe.defaults = read_bool(object, "", "defaults", true);
  if (object.contains("dtype")) {
    const std::string word = read_word(object, "", "dtype", kDtypes, "");
    const auto at = std::find(kDtypes.begin(), kDtypes.end(), word);
    recipe.dtype = kDtypeOf[static_cast<std::size_t>(at - kDtypes.begin())];
  }
  const json& rules = object.at("rules");
  if (!rules.is_array() || rules.empty() || rules.size() > kMaxRules) {
    wrong_value("rules", rules, "a list of at least one rule");
  }
  for (std::size_t i = 0; i < rules.size(); ++i) {
    recipe.rules.push_back(read_rule(rules[i], fmt::format("rules[{}]", i)));
  }
  return recipe;
}

json to_json(const Recipe& recipe) {
  json rules = json::array();
  for (const Rule& rule : recipe.rules) {
    rules.push_back(rule_json(rule));
  }
  json result = {{"version", 1},
                 {"name", recipe.name},
                 {"description", recipe.description},
                 {"defaults", recipe.defaults},
                 {"rules", std::move(rules)}};
  if (recipe.dtype) {
    const auto at = std::find(kDtypeOf.begin(), kDtypeOf.end(), *recipe.dtype);
    result["dtype"] = kDtypes[static_cast<std::size_t>(at - kDtypeOf.begin())];
  }
  return result;
}

}  // namespace nibble::quant
