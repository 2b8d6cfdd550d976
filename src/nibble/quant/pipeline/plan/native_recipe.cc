#include "nibble/quant/pipeline/plan/native_recipe.h"

#include <charconv>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/model/config.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

constexpr const char* kRouted =
    R"(re:rank\d+/layers\.\d+\.feed_forward\.experts\.moe_w_.*)";
constexpr const char* kShared =
    R"(re:rank\d+/layers\.\d+\.feed_forward\.w_(in|out|swiglu)_.*)";
constexpr const char* kDense =
    R"(re:rank\d+/layers\.\d+\.feed_forward\.w[123]\.weight)";

Recipe recipe_of(std::string_view name,
                 std::string_view description,
                 json rules) {
  return parse_recipe({{"version", 1},
                       {"name", name},
                       {"description", description},
                       {"defaults", false},
                       {"rules", std::move(rules)}});
}

[[noreturn]] void unknown(std::string_view scheme,
                          std::string_view layout,
                          std::string_view expected) {
  fail(ErrorCode::kInvalidArgument,
       "scheme of layout {}: found {}, expected {}",
       layout,
       printable(scheme),
       expected);
}

Recipe meta_recipe(std::string_view scheme, const json& config) {
  const model::ModelConfig model = model::parse_config(config);
  const bool experts = model.experts > 0;
  if (scheme == "int4_mixed") {
    if (!experts) {
      fail_with_hint(ErrorCode::kUnsupported,
                     "give --scheme fp8_mixed",
                     "int4_mixed: found a model without experts, expected "
                     "Llama 4");
    }
    return recipe_of(scheme,
                     "int4 experts, as llama-models quantizes Llama 4",
                     {{{"match", json::array({kRouted, kShared})},
                       {"scheme", "int4"},
                       {"group", 128},
                       {"on_indivisible", "smaller"}}});
  }
  if (scheme == "fp8_mixed") {
    const std::string ends = fmt::format(R"(re:rank\d+/layers\.(0|{})\..*)",
                                         model.layers.size() - 1);
    return recipe_of(scheme,
                     "fp8 feed-forward layers but for the first and the last "
                     "layer, as llama-models quantizes",
                     {{{"match", ends}, {"scheme", "keep"}},
                      {{"match", experts ? kRouted : kDense},
                       {"scheme", "fp8"},
                       {"group", "channel"}}});
  }
  unknown(scheme, "meta", "int4_mixed or fp8_mixed");
}

Recipe gpt_fast_recipe(std::string_view scheme, std::int64_t group) {
  constexpr std::string_view kExpected =
      "int8, or int4 in groups of 32, 64, 128 or 256 (int4-g32 ...)";
  if (scheme == "int8") {
    if (group != 0) {
      unknown(
          fmt::format("int8 with groups of {}", group), "gpt-fast", kExpected);
    }
    return recipe_of(
        scheme,
        "int8 linears, a scale a row, as gpt-fast quantizes",
        {{{"match", "*"}, {"scheme", "int8"}, {"group", "channel"}}});
  }
  if (scheme.starts_with("int4-gptq")) {
    fail_with_hint(ErrorCode::kUnsupported,
                   "int4 rounds to nearest and needs no calibration",
                   "scheme of layout gpt-fast: found {}, which needs "
                   "calibration; expected {}",
                   printable(scheme),
                   kExpected);
  }
  constexpr std::string_view kInt4 = "int4-g";
  if (scheme.starts_with(kInt4) && group == 0) {
    const std::string_view digits = scheme.substr(kInt4.size());
    std::from_chars(digits.data(), digits.data() + digits.size(), group);
    if (fmt::format("{}{}", kInt4, group) != scheme) {
      unknown(scheme, "gpt-fast", kExpected);
    }
  } else if (scheme != "int4") {
    unknown(scheme, "gpt-fast", kExpected);
  }
  group = group == 0 ? 32 : group;
  if (group != 32 && group != 64 && group != 128 && group != 256) {
    unknown(fmt::format("int4 in groups of {}", group), "gpt-fast", kExpected);
  }
  return recipe_of(fmt::format("int4-g{}", group),
                   "int4 linears with real zeros, as gpt-fast quantizes",
                   {{{"match", "*"},
                     {"scheme", "int4"},
                     {"group", group},
                     {"on_indivisible", "pad"}}});
}

}  // namespace

Recipe native_recipe(load::NativeLayout layout,
                     std::string_view scheme,
                     std::int64_t group,
                     const nlohmann::json& config) {
  if (layout == load::NativeLayout::kGptFast) {
    return gpt_fast_recipe(scheme, group);
  }
  if (group != 0) {
    unknown(fmt::format("{} with groups of {}", scheme, group),
            "meta",
            "no --group: int4_mixed has groups of 128");
  }
  return meta_recipe(scheme, config);
}

Recipe copying_recipe() {
  Recipe recipe;
  recipe.name = "copy";
  recipe.defaults = false;
  return recipe;
}

}  // namespace nibble::quant
