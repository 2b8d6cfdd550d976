#include "nibble/quant/recipe/foreign.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/log.h"
#include "nibble/base/units.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

std::string shown(const json& value) {
  return printable(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

// ---- torchchat -------------------------------------------------------------

constexpr std::array<std::string_view, 9> kTorchchatKeys = {"executor",
                                                            "precision",
                                                            "linear:int4",
                                                            "linear:int8",
                                                            "linear:a8w4dq",
                                                            "linear:a8wxdq",
                                                            "linear:afpwx",
                                                            "embedding",
                                                            "embedding:wx"};

bool is_torchchat(const json& recipe) {
  return std::any_of(
      kTorchchatKeys.begin(), kTorchchatKeys.end(), [&](auto key) {
        return recipe.contains(std::string(key));
      });
}

// An integer option of one of torchchat's keys.
std::int64_t number_option(const json& options,
                           const std::string& key,
                           const char* name,
                           std::optional<std::int64_t> absent) {
  const auto found = options.find(name);
  if (found == options.end() || found->is_null()) {
    NIBBLE_CHECK(absent.has_value(),
                 kBadRecipe,
                 "{}: found no {}, expected it",
                 key,
                 name);
    return *absent;
  }
  NIBBLE_CHECK(found->is_number_integer(),
               kBadRecipe,
               "{}.{}: found {}, expected an integer",
               key,
               name,
               shown(*found));
  return found->get<std::int64_t>();
}

void check_options(const json& options,
                   const std::string& key,
                   std::initializer_list<std::string_view> known) {
  NIBBLE_CHECK(options.is_object(),
               kBadRecipe,
               "{}: found {}, expected an object",
               key,
               shown(options));
  for (const auto& [name, value] : options.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const std::string near = nearest_word(name, known);
      fail_with_hint(ErrorCode::kBadRecipe,
                     near.empty() ? "" : "did you mean " + near + "?",
                     "{}: found the unknown option '{}'",
                     key,
                     printable(name));
    }
  }
}

// 0, -1 and nothing are a scale for each row there.
json group_of(std::int64_t groupsize) {
  return groupsize <= 0 ? json("channel") : json(groupsize);
}

// The rule that one of torchchat's linear options comes down to. Its int4 has
// real zero points; integer ones are the nearest that is stored here.
json torchchat_rule(const std::string& key, const json& options) {
  if (key == "linear:int4") {
    check_options(
        options, key, {"groupsize", "padding_allowed", "inner_k_tiles"});
    return {{"match", "*"},
            {"scheme", "int4"},
            {"symmetric", false},
            {"group", group_of(number_option(options, key, "groupsize", 256))}};
  }
  if (key == "linear:int8") {
    check_options(options, key, {"groupsize", "bitwidth", "node_type"});
    const std::int64_t bits = number_option(options, key, "bitwidth", 8);
    const json node = options.value("node_type", json("*"));
    NIBBLE_CHECK(node == "*" || node == "!output",
                 kBadRecipe,
                 "{}.node_type: found {}, expected \"*\" or \"!output\"",
                 key,
                 shown(node));
    return {{"match", "*"},
            {"scheme", fmt::format("int{}", bits)},
            {"group", group_of(number_option(options, key, "groupsize", 0))}};
  }
  json rule = {{"match", "*"}, {"activations", "dynamic"}};
  if (key == "linear:a8w4dq") {
    check_options(options, key, {"groupsize", "padding_allowed"});
    rule["scheme"] = "int4";
    rule["group"] = group_of(number_option(options, key, "groupsize", 256));
    return rule;
  }
  NIBBLE_CHECK(key == "linear:a8wxdq",
               kBadRecipe,
               "{}: found an option without an equivalent here, expected "
               "linear:int4, linear:int8, linear:a8w4dq or linear:a8wxdq",
               key);
  check_options(options, key, {"bitwidth", "groupsize", "has_weight_zeros"});
  const json zeros = options.value("has_weight_zeros", json());
  NIBBLE_CHECK(zeros.is_boolean(),
               kBadRecipe,
               "{}.has_weight_zeros: found {}, expected true or false",
               key,
               shown(zeros));
  rule["scheme"] = fmt::format(
      "int{}", number_option(options, key, "bitwidth", std::nullopt));
  rule["symmetric"] = !zeros.get<bool>();
  rule["group"] =
      group_of(number_option(options, key, "groupsize", std::nullopt));
  return rule;
}

json translate_torchchat(const json& recipe) {
  json rules = json::array();
  std::string left_out;
  for (const auto& [key, options] : recipe.items()) {
    if (std::find(kTorchchatKeys.begin(), kTorchchatKeys.end(), key) ==
        kTorchchatKeys.end()) {
      const std::string near = nearest_word(key, kTorchchatKeys);
      fail_with_hint(ErrorCode::kBadRecipe,
                     near.empty() ? "" : "did you mean " + near + "?",
                     "torchchat recipe: found the unknown key '{}'",
                     printable(key));
    }
    if (key.starts_with("linear:")) {
      rules.push_back(torchchat_rule(key, options));
    } else {
      left_out += left_out.empty() ? "" : ", ";
      left_out += key;
    }
  }
  NIBBLE_CHECK(rules.size() == 1,
               kBadRecipe,
               "torchchat recipe: found {} keys of linear layers, expected one",
               rules.size());
  std::string description = "translated from a torchchat recipe";
  if (!left_out.empty()) {
    description += "; without " + left_out;
    log_warning(
        "torchchat recipe: {} says nothing about linear layers and is left "
        "out: those weights stay as they are",
        left_out);
  }
  return {{"version", 1}, {"description", description}, {"rules", rules}};
}

// ---- compressed-tensors ----------------------------------------------------

struct PresetWords {
  std::string_view name;
  std::string_view scheme;
  bool symmetric;
  std::string_view group;  // JSON
  std::string_view activations;
};

constexpr std::array<PresetWords, 9> kPresets = {{
    {"W4A16", "int4", true, "128", "none"},
    {"W4A16_ASYM", "int4", false, "128", "none"},
    {"W8A16", "int8", true, "128", "none"},
    {"W8A8", "int8", true, "\"channel\"", "dynamic"},
    {"INT8", "int8", true, "\"channel\"", "dynamic"},
    {"W4A8", "int4", true, "128", "dynamic"},
    {"FP8", "fp8", true, "\"tensor\"", "static"},
    {"FP8_DYNAMIC", "fp8", true, "\"channel\"", "dynamic"},
    {"FP8_BLOCK", "fp8", true, "[128, 128]", "dynamic"},
}};

// A target or an entry of ignore as a pattern of ours. Theirs fit from the
// start of a name, ours the whole of it.
std::string pattern_of(const json& target, const std::string& where) {
  NIBBLE_CHECK(target.is_string(),
               kBadRecipe,
               "{}: found {}, expected a string",
               where,
               shown(target));
  const auto& text = target.get_ref<const std::string&>();
  if (text == "Linear") {
    return "*";
  }
  return text.starts_with("re:") ? fmt::format("re:(?:{}).*", text.substr(3))
                                 : text;
}

std::vector<std::string> patterns_of(const json& targets,
                                     const std::string& where) {
  NIBBLE_CHECK(targets.is_array() && !targets.empty(),
               kBadRecipe,
               "{}: found {}, expected a list of at least one target",
               where,
               shown(targets));
  std::vector<std::string> patterns;
  for (const json& target : targets) {
    patterns.push_back(pattern_of(target, where));
  }
  return patterns;
}

// The words of a rule that an args object of weights comes down to. Values
// without an equivalent become words that the parser of rules refuses.
json rule_of_args(const json& weights, const std::string& where) {
  NIBBLE_CHECK(weights.is_object(),
               kBadRecipe,
               "{}: found {}, expected an object",
               where,
               shown(weights));
  const json type = weights.value("type", json("int"));
  const json bits = weights.value("num_bits", json(8));
  json rule = {
      {"scheme",
       fmt::format("{}{}", type == "float" ? "fp" : "int", shown(bits))},
      {"symmetric", weights.value("symmetric", json(true))}};
  const json size = weights.value("group_size", json());
  const json block = weights.value("block_structure", json());
  json strategy = weights.value("strategy", json());
  if (strategy.is_null()) {
    strategy = size.is_null() ? "tensor" : size == -1 ? "channel" : "group";
  }
  if (strategy == "group") {
    rule["group"] = size;
  } else if (strategy == "block") {
    rule["group"] = block == "128x128" ? json{128, 128} : block;
  } else {
    rule["group"] = strategy;
  }
  return rule;
}

json rule_of_group(const std::string& name,
                   const json& group,
                   const std::string& where) {
  if (group.is_array()) {  // the targets of a preset
    const auto preset = std::find_if(
        kPresets.begin(), kPresets.end(), [&](const PresetWords& each) {
          return each.name == name;
        });
    NIBBLE_CHECK(preset != kPresets.end(),
                 kBadRecipe,
                 "{}: found no preset of that name",
                 where);
    return {{"match", patterns_of(group, where)},
            {"scheme", preset->scheme},
            {"symmetric", preset->symmetric},
            {"group", json::parse(preset->group)},
            {"activations", preset->activations}};
  }
  NIBBLE_CHECK(group.is_object(),
               kBadRecipe,
               "{}: found {}, expected an object",
               where,
               shown(group));
  NIBBLE_CHECK(group.value("output_activations", json()).is_null(),
               kBadRecipe,
               "{}.output_activations: found quantized outputs, expected null",
               where);
  json rule = rule_of_args(group.value("weights", json()), where + ".weights");
  rule["match"] =
      patterns_of(group.value("targets", json()), where + ".targets");
  const json inputs = group.value("input_activations", json());
  if (inputs.is_object()) {
    rule["activations"] =
        inputs.value("dynamic", json(false)) == false ? "static" : "dynamic";
  }
  return rule;
}

// Exact names go before regular expressions, these before classes.
int precedence(const json& rule) {
  int last = 0;
  for (const json& pattern : rule.at("match")) {
    const auto& text = pattern.get_ref<const std::string&>();
    last = std::max(last, text == "*" ? 2 : text.starts_with("re:") ? 1 : 0);
  }
  return last;
}

json translate_compressed_tensors(const json& config) {
  for (const char* key :
       {"kv_cache_scheme", "sparsity_config", "transform_config"}) {
    const json feature = config.value(key, json());
    NIBBLE_CHECK(feature.empty(),
                 kBadRecipe,
                 "{}: found {}, which has no equivalent here, expected none",
                 key,
                 shown(feature));
  }
  json rules = json::array();
  const json ignore = config.value("ignore", json::array());
  if (!ignore.empty()) {
    // Entries that name nothing are usual there: a head that is tied, say.
    rules.push_back({{"match", patterns_of(ignore, "ignore")},
                     {"scheme", "keep"},
                     {"optional", true}});
  }
  const json& groups = config.at("config_groups");
  NIBBLE_CHECK(groups.is_object(),
               kBadRecipe,
               "config_groups: found {}, expected an object",
               shown(groups));
  std::vector<json> quantizing;
  for (const auto& [name, group] : groups.items()) {
    quantizing.push_back(rule_of_group(
        name, group, fmt::format("config_groups.{}", printable(name))));
  }
  std::stable_sort(
      quantizing.begin(), quantizing.end(), [](const json& a, const json& b) {
        return precedence(a) < precedence(b);
      });
  for (json& rule : quantizing) {
    rules.push_back(std::move(rule));
  }
  // Their selection is complete by itself: no keep list comes before it.
  return {{"version", 1},
          {"description", "translated from a compressed-tensors config"},
          {"defaults", false},
          {"rules", std::move(rules)}};
}

}  // namespace

std::optional<json> translate_foreign_recipe(const json& recipe) {
  if (!recipe.is_object() || recipe.contains("rules")) {
    return std::nullopt;
  }
  if (recipe.contains("config_groups")) {
    return translate_compressed_tensors(recipe);
  }
  const auto inner = recipe.find("quantization_config");
  if (inner != recipe.end() && inner->is_object() &&
      inner->contains("config_groups")) {
    return translate_compressed_tensors(*inner);
  }
  return is_torchchat(recipe) ? std::optional(translate_torchchat(recipe))
                              : std::nullopt;
}

}  // namespace nibble::quant
