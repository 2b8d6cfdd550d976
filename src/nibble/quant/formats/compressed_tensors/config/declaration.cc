#include "nibble/quant/formats/compressed_tensors/config/declaration.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/log.h"
#include "nibble/base/units.h"
#include "nibble/quant/formats/compressed_tensors/config/args.h"
#include "nibble/quant/formats/compressed_tensors/config/json_fields.h"
#include "nibble/quant/formats/compressed_tensors/config/layout.h"
#include "nibble/quant/formats/compressed_tensors/config/presets.h"

namespace nibble::quant::compressed_tensors {
namespace {

constexpr std::string_view kRoot = "quantization_config";
constexpr std::array<std::string_view, 4> kRead = {
    "pack-quantized", "int-quantized", "float-quantized", "naive-quantized"};
constexpr std::array<std::string_view, 6> kRefused = {"nvfp4-pack-quantized",
                                                      "mxfp4-pack-quantized",
                                                      "mxfp8-quantized",
                                                      "marlin-24",
                                                      "sparse-24-bitmask",
                                                      "sparse-bitmask"};
constexpr std::string_view kHint =
    "this program reads pack-quantized and int-quantized (4 and 8 bits), "
    "float-quantized and naive-quantized (fp8) checkpoints; quantize the "
    "source to one of these";

bool is_in(std::string_view word, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Words that say nothing about storage: the library's default for an absent
// one, and the global word when each group has its own.
bool says_nothing(std::string_view format) {
  return format.empty() || format == "fakequant" ||
         format == "mixed-precision" || format == "dense";
}

void check_format_word(const std::string& format, const std::string& where) {
  if (says_nothing(format) || is_in(format, kRead)) {
    return;
  }
  if (is_in(format, kRefused)) {
    fail_with_hint(ErrorCode::kUnsupported,
                   kHint,
                   "config.json: {}.format: found {}, expected pack-quantized, "
                   "int-quantized, float-quantized or naive-quantized",
                   where,
                   format);
  }
  const std::string near = nearest_word(format, kRead);
  fail_with_hint(
      ErrorCode::kCorruptData,
      near.empty() ? std::string(kHint) : "did you mean " + near + "?",
      "config.json: {}.format: found the unknown word '{}'",
      where,
      printable(format));
}

// A format's word must be able to hold what the group declares.
void check_format_holds(const Group& group, const std::string& where) {
  const bool floating = group.spec->weight.floating;
  const bool fits = group.format == "naive-quantized" ||
                    (group.format == "float-quantized" ? floating : !floating);
  NIBBLE_CHECK(fits,
               kCorruptData,
               "config.json: {}.format: found {} for {} weights",
               where,
               group.format,
               group.spec->weight.scheme);
}

Group read_preset(const std::string& name,
                  const nlohmann::json& targets,
                  const std::string& where) {
  const Preset* preset = preset_named(name);
  NIBBLE_CHECK(preset != nullptr,
               kCorruptData,
               "config.json: {}: found a list, expected an object (or the name "
               "of a preset as key)",
               where);
  if (preset->unsupported) {
    fail_with_hint(ErrorCode::kUnsupported,
                   kHint,
                   "config.json: {}: found the preset {}, expected one of "
                   "integers of 4 or 8 bits or fp8",
                   where,
                   name);
  }
  if (name == "W8A16") {
    log_warning(
        "config.json: {}: this preset meant one scale a row up to release "
        "0.12 and one for 128 columns later; the later meaning is taken",
        where);
  }
  Group group;
  group.name = name;
  group.spec = preset->spec;
  const nlohmann::json wrapped = {{"targets", targets}};
  group.targets = text_list_field(wrapped, where, "targets");
  return group;
}

Group read_group(const std::string& name,
                 const nlohmann::json& object,
                 const std::string& where) {
  if (object.is_array()) {
    return read_preset(name, object, where);
  }
  check_keys(object,
             where,
             {"targets",
              "weights",
              "input_activations",
              "output_activations",
              "format"});
  Group group;
  group.name = name;
  group.targets = text_list_field(object, where, "targets");
  group.format = text_field(object, where, "format", "");
  check_format_word(group.format, where);
  const nlohmann::json* weights = field(object, "weights");
  const nlohmann::json* inputs = field(object, "input_activations");
  NIBBLE_CHECK(field(object, "output_activations") == nullptr,
               kUnsupported,
               "config.json: {}.output_activations: found quantized outputs, "
               "expected null",
               where);
  if (weights == nullptr) {
    NIBBLE_CHECK(inputs == nullptr,
                 kUnsupported,
                 "config.json: {}: found quantized inputs without quantized "
                 "weights, expected both",
                 where);
    return group;
  }
  LayerSpec spec;
  spec.weight = weight_spec(*weights, where + ".weights");
  if (inputs != nullptr) {
    spec.input = input_spec(*inputs, where + ".input_activations");
  }
  group.spec = std::move(spec);
  return group;
}

// Features beside the groups that would change what the tensors mean.
void check_other_features(const nlohmann::json& entry) {
  const auto refuse = [](std::string_view key, std::string_view found) {
    fail_with_hint(ErrorCode::kUnsupported,
                   kHint,
                   "config.json: {}.{}: found {}, expected none",
                   kRoot,
                   key,
                   found);
  };
  if (field(entry, "kv_cache_scheme") != nullptr) {
    refuse("kv_cache_scheme", "a quantized key/value cache");
  }
  if (const nlohmann::json* sparsity = field(entry, "sparsity_config")) {
    if (!sparsity->empty()) {
      const std::string where = std::string(kRoot) + ".sparsity_config";
      NIBBLE_CHECK(sparsity->is_object(),
                   kCorruptData,
                   "config.json: {}: found a JSON {}, expected an object",
                   where,
                   sparsity->type_name());
      const std::string format = text_field(*sparsity, where, "format", "");
      if (format != "dense") {
        refuse("sparsity_config", "the sparse format " + printable(format));
      }
    }
  }
  if (const nlohmann::json* transform = field(entry, "transform_config")) {
    const nlohmann::json* groups =
        transform->is_object() ? field(*transform, "config_groups") : nullptr;
    if (!transform->empty() && (groups == nullptr || !groups->empty())) {
      refuse("transform_config", "transformed (rotated) weights");
    }
  }
}

// The same target in two groups has no agreed meaning: some readers take the
// first, some the last.
void check_targets_once(const std::vector<Group>& groups) {
  std::vector<std::string_view> all;
  for (const Group& group : groups) {
    all.insert(all.end(), group.targets.begin(), group.targets.end());
  }
  std::sort(all.begin(), all.end());
  const auto twice = std::adjacent_find(all.begin(), all.end());
  NIBBLE_CHECK(twice == all.end(),
               kCorruptData,
               "config.json: {}.config_groups: found the target '{}' twice, "
               "expected it once",
               kRoot,
               printable(*twice));
}

NameRegex regex_of(std::string_view pattern) {
  return NameRegex(pattern.substr(3), ErrorCode::kCorruptData);
}

// A class of PyTorch modules: a word that begins with a capital letter.
bool is_class_name(std::string_view target) {
  return !target.empty() && target.front() >= 'A' && target.front() <= 'Z' &&
         target.find('.') == std::string_view::npos;
}

}  // namespace

const nlohmann::json* declaration_entry(const nlohmann::json& config) {
  if (!config.is_object()) {
    return nullptr;
  }
  for (const char* key : {"quantization_config", "compression_config"}) {
    const nlohmann::json* entry = field(config, key);
    if (entry != nullptr && entry->is_object()) {
      const nlohmann::json* method = field(*entry, "quant_method");
      const bool ours = method != nullptr
                            ? *method == "compressed-tensors"
                            : std::string_view(key) == "compression_config";
      if (ours) {
        return entry;
      }
    }
  }
  return nullptr;
}

Declaration parse_declaration(const nlohmann::json& entry) {
  const std::string root(kRoot);
  Declaration declaration;
  declaration.format = text_field(entry, root, "format", "");
  check_format_word(declaration.format, root);
  check_other_features(entry);
  const nlohmann::json* groups = field(entry, "config_groups");
  NIBBLE_CHECK(
      groups != nullptr && groups->is_object() && !groups->empty(),
      kCorruptData,
      "config.json: {}.config_groups: found {}, expected an object "
      "with at least one group",
      kRoot,
      groups == nullptr
          ? "nothing"
          : printable(groups->dump(
                -1, ' ', true, nlohmann::json::error_handler_t::replace)));
  for (const auto& [name, object] : groups->items()) {
    const std::string where = root + ".config_groups." + printable(name);
    Group group = read_group(name, object, where);
    NIBBLE_CHECK(!group.targets.empty(),
                 kCorruptData,
                 "config.json: {}.targets: found none, expected at least one",
                 where);
    if (group.spec) {
      if (says_nothing(group.format)) {
        group.format = declaration.format;
      }
      if (says_nothing(group.format)) {
        group.format = format_word(*group.spec);
      }
      check_format_holds(group, where);
    }
    declaration.groups.push_back(std::move(group));
  }
  check_targets_once(declaration.groups);
  declaration.ignore = text_list_field(entry, root, "ignore");
  return declaration;
}

Targets::Targets(const Declaration& declaration) {
  for (const Group& group : declaration.groups) {
    for (const std::string& target : group.targets) {
      if (target == "Linear") {
        linear_ = &group;
      } else if (target.starts_with("re:")) {
        regexes_.push_back({target, &group, regex_of(target)});
      } else {
        NIBBLE_CHECK(!is_class_name(target),
                     kUnsupported,
                     "config.json: {}.config_groups.{}.targets: found the "
                     "class {}, expected \"Linear\", a module's name or "
                     "\"re:...\"",
                     kRoot,
                     printable(group.name),
                     printable(target));
        exact_.emplace(target, &group);
      }
    }
  }
  std::sort(regexes_.begin(), regexes_.end(), [](const auto& a, const auto& b) {
    return a.text < b.text;
  });
  for (const std::string& entry : declaration.ignore) {
    if (entry.starts_with("re:")) {
      ignore_regexes_.push_back(regex_of(entry));
    } else {
      // Names of classes other than Linear stay here and fit nothing: they
      // are containers, whose own name is not that of a weight.
      ignore_.insert(entry);
    }
  }
}

std::optional<Targets::Hit> Targets::find(std::string_view module) const {
  const auto exact = exact_.find(module);
  if (exact != exact_.end()) {
    return Hit{exact->second, exact->first, false};
  }
  for (const Pattern& pattern : regexes_) {
    if (pattern.regex.fits_start(module)) {
      return Hit{pattern.group, pattern.text, false};
    }
  }
  if (linear_ != nullptr) {
    return Hit{linear_, "Linear", true};
  }
  return std::nullopt;
}

bool Targets::ignored(std::string_view module) const {
  return ignore_.contains(module) || ignore_.contains("Linear") ||
         std::any_of(
             ignore_regexes_.begin(),
             ignore_regexes_.end(),
             [&](const NameRegex& regex) { return regex.fits_start(module); });
}

std::vector<std::string_view> Targets::exact_targets() const {
  std::vector<std::string_view> names;
  for (const auto& [name, group] : exact_) {
    names.push_back(name);
  }
  return names;
}

}  // namespace nibble::quant::compressed_tensors
