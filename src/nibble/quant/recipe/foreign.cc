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

bool is_torchchat_key(std::string_view key) {
  return std::find(kTorchchatKeys.begin(), kTorchchatKeys.end(), key) !=
         kTorchchatKeys.end();
}

// One key may say what becomes of a kind of weight.
void refuse_several(std::string_view kind,
                    const json& recipe,
                    std::string_view prefix) {
  const auto count = std::count_if(
      kTorchchatKeys.begin(), kTorchchatKeys.end(), [&](auto key) {
        return key.starts_with(prefix) && recipe.contains(std::string(key));
      });
  NIBBLE_CHECK(count <= 1,
               kBadRecipe,
               "torchchat recipe: found {} keys of {}, expected one",
               count,
               kind);
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

// The same for true or false.
bool flag_option(const json& options,
                 const std::string& key,
                 const char* name,
                 std::optional<bool> absent) {
  const json value = options.value(name, absent ? json(*absent) : json());
  NIBBLE_CHECK(value.is_boolean(),
               kBadRecipe,
               "{}.{}: found {}, expected true or false",
               key,
               name,
               shown(value));
  return value.get<bool>();
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

// What the rules of a recipe of theirs have in common but for their match.
// Their int4 has real zero points; integer ones are the nearest stored here.
json linear_words(const std::string& key, const json& options) {
  if (key == "linear:int4") {
    check_options(
        options, key, {"groupsize", "padding_allowed", "inner_k_tiles"});
    return {{"scheme", "int4"},
            {"symmetric", false},
            {"group", group_of(number_option(options, key, "groupsize", 256))}};
  }
  if (key == "linear:int8") {
    check_options(options, key, {"groupsize", "bitwidth", "node_type"});
    const std::int64_t bits = number_option(options, key, "bitwidth", 8);
    return {{"scheme", fmt::format("int{}", bits)},
            {"group", group_of(number_option(options, key, "groupsize", 0))}};
  }
  json words = {{"activations", "dynamic"}};
  if (key == "linear:a8w4dq") {
    check_options(options, key, {"groupsize", "padding_allowed"});
    words["scheme"] = "int4";
    words["group"] = group_of(number_option(options, key, "groupsize", 256));
    return words;
  }
  NIBBLE_CHECK(key == "linear:a8wxdq",
               kBadRecipe,
               "{}: found an option without an equivalent here, expected "
               "linear:int4, linear:int8, linear:a8w4dq or linear:a8wxdq",
               key);
  check_options(options, key, {"bitwidth", "groupsize", "has_weight_zeros"});
  words["scheme"] = fmt::format(
      "int{}", number_option(options, key, "bitwidth", std::nullopt));
  words["symmetric"] =
      !flag_option(options, key, "has_weight_zeros", std::nullopt);
  words["group"] =
      group_of(number_option(options, key, "groupsize", std::nullopt));
  return words;
}

json embedding_words(const std::string& key, const json& options) {
  if (key == "embedding") {
    check_options(options, key, {"bitwidth", "groupsize", "packed"});
    return {{"scheme",
             fmt::format("int{}", number_option(options, key, "bitwidth", 8))},
            {"group", group_of(number_option(options, key, "groupsize", 0))}};
  }
  check_options(options, key, {"bitwidth", "groupsize", "has_weight_zeros"});
  return {{"scheme",
           fmt::format("int{}",
                       number_option(options, key, "bitwidth", std::nullopt))},
          {"group",
           group_of(number_option(options, key, "groupsize", std::nullopt))},
          {"symmetric", !flag_option(options, key, "has_weight_zeros", true)}};
}

// Whether a linear option means the output head, too, as all do there but
// int8 for a part of the network.
bool means_head(const std::string& key, const json& options) {
  if (key != "linear:int8") {
    return true;
  }
  const json node = options.value("node_type", json("*"));
  NIBBLE_CHECK(node == "*" || node == "!output",
               kBadRecipe,
               "{}.node_type: found {}, expected \"*\" or \"!output\"",
               key,
               shown(node));
  return node == "*";
}

json rule_with(json words, json match) {
  words["match"] = std::move(match);
  return words;
}

// A rule for what the family's keep list would keep.
json forced(json rule) {
  rule["force"] = true;
  return rule;
}

// "precision": {"dtype": "bf16"} casts the model there; here the source must
// have that type already.
std::string precision_dtype(const json& options) {
  check_options(options, "precision", {"dtype"});
  const json word = options.value("dtype", json());
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10>
      kWords = {{{"fast", "bf16"},
                 {"fast16", "bf16"},
                 {"bf16", "bf16"},
                 {"bfloat16", "bf16"},
                 {"fp16", "f16"},
                 {"half", "f16"},
                 {"float16", "f16"},
                 {"fp32", "f32"},
                 {"float", "f32"},
                 {"float32", "f32"}}};
  for (const auto& [theirs, ours] : kWords) {
    if (word == theirs) {
      return std::string(ours);
    }
  }
  fail_with_hint(ErrorCode::kBadRecipe,
                 "",
                 "precision.dtype: found {}, expected fast, fast16, bf16, fp16 "
                 "or fp32",
                 shown(word));
}

// The device that a result runs on is chosen when it runs; only the words that
// have a meaning pass.
void check_executor(const json& options) {
  check_options(options, "executor", {"accelerator"});
  const json word = options.value("accelerator", json());
  constexpr std::array<std::string_view, 6> kDevices = {
      "fast", "cpu", "cuda", "mps", "xpu", "npu"};
  NIBBLE_CHECK(
      word.is_string() &&
          std::find(kDevices.begin(), kDevices.end(), word) != kDevices.end(),
      kBadRecipe,
      "executor.accelerator: found {}, expected fast, cpu or cuda",
      shown(word));
  if (word != "fast" && word != "cpu" && word != "cuda") {
    fail_with_hint(ErrorCode::kBadRecipe,
                   "take \"executor\" out of the recipe",
                   "executor.accelerator: found {}, which nothing here runs "
                   "on, expected fast, cpu or cuda",
                   shown(word));
  }
}

json translate_torchchat(const json& recipe) {
  json result = {{"version", 1},
                 {"description", "translated from a torchchat recipe"}};
  json embeddings = json::array();
  json linears = json::array();
  for (const auto& [key, options] : recipe.items()) {
    if (key == "precision") {
      result["dtype"] = precision_dtype(options);
    } else if (key == "executor") {
      check_executor(options);
    } else if (key.starts_with("embedding") && is_torchchat_key(key)) {
      embeddings.push_back(forced(
          rule_with(embedding_words(key, options), json("*.embed_tokens"))));
    } else if (is_torchchat_key(key)) {
      const json words = linear_words(key, options);
      if (means_head(key, options)) {
        // A tied model has no head of its own.
        json head = forced(rule_with(words, {"lm_head", "*.lm_head"}));
        head["optional"] = true;
        linears.push_back(std::move(head));
      }
      linears.push_back(rule_with(words, "*"));
    } else {
      const std::string near = nearest_word(key, kTorchchatKeys);
      fail_with_hint(ErrorCode::kBadRecipe,
                     near.empty() ? "" : "did you mean " + near + "?",
                     "torchchat recipe: found the unknown key '{}'",
                     printable(key));
    }
  }
  refuse_several("embedding tables", recipe, "embedding");
  refuse_several("linear layers", recipe, "linear:");
  NIBBLE_CHECK(!embeddings.empty() || !linears.empty(),
               kBadRecipe,
               "torchchat recipe: found no key of linear layers or embedding "
               "tables, expected at least one: it quantizes nothing");
  result["rules"] = std::move(embeddings);
  for (json& rule : linears) {
    result["rules"].push_back(std::move(rule));
  }
  return result;
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
