#include "nibble/quant/core/registry.h"

#include <array>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/units.h"

namespace nibble::quant {

#define NIBBLE_SCHEME(name) const Scheme& name##_scheme();
#include "nibble/quant/schemes/schemes.def"
#undef NIBBLE_SCHEME
#define NIBBLE_FORMAT(name) const Format& name##_format();
#include "nibble/quant/formats/formats.def"
#undef NIBBLE_FORMAT
#define NIBBLE_ALGORITHM(name) const Algorithm& name##_algorithm();
#include "nibble/quant/algorithms/algorithms.def"
#undef NIBBLE_ALGORITHM

namespace {

// Throws kBadRecipe with the nearest known name.
[[noreturn]] void unknown_name(std::string_view what,
                               std::string_view name,
                               const std::vector<std::string_view>& known) {
  std::string list;
  for (const std::string_view word : known) {
    list += list.empty() ? "" : ", ";
    list += word;
  }
  const std::string near = nearest_word(name, known);
  fail_with_hint(ErrorCode::kBadRecipe,
                 near.empty() ? "" : "did you mean " + near + "?",
                 "{}: found '{}', expected one of {}",
                 what,
                 printable(name),
                 list);
}

template <typename Item>
const Item& item_named(std::string_view what,
                       std::span<const Item* const> items,
                       std::string_view name) {
  std::vector<std::string_view> known;
  for (const Item* item : items) {
    if (item->name() == name) {
      return *item;
    }
    known.push_back(item->name());
  }
  unknown_name(what, name, known);
}

}  // namespace

std::span<const Scheme* const> schemes() {
#define NIBBLE_SCHEME(name) &name##_scheme(),
  static const std::vector<const Scheme*> all{
#include "nibble/quant/schemes/schemes.def"
  };
#undef NIBBLE_SCHEME
  return all;
}

std::span<const Format* const> formats() {
#define NIBBLE_FORMAT(name) &name##_format(),
  static const std::vector<const Format*> all{
#include "nibble/quant/formats/formats.def"
  };
#undef NIBBLE_FORMAT
  return all;
}

std::span<const Algorithm* const> algorithms() {
#define NIBBLE_ALGORITHM(name) &name##_algorithm(),
  static const std::vector<const Algorithm*> all{
#include "nibble/quant/algorithms/algorithms.def"
  };
#undef NIBBLE_ALGORITHM
  return all;
}

const Scheme& scheme_named(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Scheme* scheme : schemes()) {
    for (const std::string_view word : scheme->recipe_names()) {
      if (word == name) {
        return *scheme;
      }
      known.push_back(word);
    }
  }
  known.emplace_back("keep");
  unknown_name("scheme", name, known);
}

const Scheme& scheme_for(const NumberSpec& spec) {
  return scheme_named(spec.scheme);
}

const Format& format_named(std::string_view name) {
  const std::size_t slash = name.find('/');
  const Format& format = item_named("layout", formats(), name.substr(0, slash));
  if (slash == std::string_view::npos) {
    return format;
  }
  const Format* variant = format.variant(name.substr(slash + 1));
  NIBBLE_CHECK(variant != nullptr,
               kInvalidArgument,
               "layout {}: found no such order of codes",
               printable(name));
  return *variant;
}

const Algorithm& algorithm_named(std::string_view name) {
  return item_named("algorithm", algorithms(), name);
}

std::unique_ptr<QuantizedCheckpoint> open_quantized(
    const nlohmann::json& config, const container::CheckpointReader& reader) {
  for (const Format* format : formats()) {
    if (auto opened = format->open(config, reader)) {
      return opened;
    }
  }
  const auto declared = config.find("quantization_config");
  if (declared != config.end() && !declared->is_null()) {
    std::string method = "no quant_method";
    if (declared->is_object()) {
      method = declared->value("quant_method", method);
    }
    fail(ErrorCode::kUnsupported,
         "config.json: quantization_config: found {}, expected "
         "compressed-tensors",
         printable(method));
  }
  return nullptr;
}

}  // namespace nibble::quant
