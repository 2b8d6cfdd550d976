#include "nibble/quant/formats/compressed_tensors/config/config_entry.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/quant/formats/compressed_tensors/config/args.h"
#include "nibble/quant/formats/compressed_tensors/config/layout.h"
#include "nibble/quant/formats/compressed_tensors/config/target_patterns.h"

namespace nibble::quant::compressed_tensors {
namespace {

// The library release whose files ours equal: rounding rules changed with
// 0.13, and no reader asks for more than what 0.11 knew. Informational.
constexpr std::string_view kVersion = "0.14.0";

// Modules of one scheme.
struct Scheme {
  LayerSpec spec;
  std::vector<std::string_view> modules;     // linears
  std::vector<std::string_view> embeddings;  // which no class reaches
};

// The dtype of scales stands with the tensors, not in the declaration.
LayerSpec without_dtypes(LayerSpec spec) {
  spec.weight.scale_dtype = DType::kBF16;
  if (spec.input) {
    spec.input->scale_dtype = DType::kBF16;
  }
  return spec;
}

std::vector<Scheme> schemes_of(std::span<const LayerDecision> layers) {
  std::vector<Scheme> schemes;
  for (const LayerDecision& layer : layers) {
    if (!layer.spec) {
      continue;
    }
    const LayerSpec spec = without_dtypes(*layer.spec);
    auto found =
        std::find_if(schemes.begin(), schemes.end(), [&](const Scheme& scheme) {
          return scheme.spec == spec;
        });
    if (found == schemes.end()) {
      schemes.push_back({spec, {}, {}});
      found = std::prev(schemes.end());
    }
    (layer.embedding ? found->embeddings : found->modules)
        .push_back(layer.module);
  }
  return schemes;
}

// Every linear that stays dense, by its full name. A tied output head has no
// tensor, yet engines make a layer for it and ask whether it is quantized.
nlohmann::json ignore_list(std::span<const LayerDecision> layers) {
  nlohmann::json ignore = nlohmann::json::array();
  bool head = false;
  bool wrapped = !layers.empty();
  constexpr std::string_view kWrapper = "language_model.";
  for (const LayerDecision& layer : layers) {
    head =
        head || layer.module == "lm_head" || layer.module.ends_with(".lm_head");
    wrapped = wrapped && (!layer.spec || layer.module.starts_with(kWrapper));
    if (!layer.spec) {
      ignore.push_back(layer.module);
    }
  }
  if (!head) {
    ignore.push_back(wrapped ? std::string(kWrapper) + "lm_head" : "lm_head");
  }
  return ignore;
}

// What reaches the modules of each scheme, and no other: the class where all
// linears are alike, else patterns of names.
std::vector<std::vector<std::string>> targets_of(
    std::span<const Scheme> schemes) {
  std::vector<std::vector<std::string_view>> groups;
  std::vector<std::size_t> owners;
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    if (!schemes[i].modules.empty()) {
      groups.push_back(schemes[i].modules);
      owners.push_back(i);
    }
  }
  std::vector<std::vector<std::string>> patterns = {{"Linear"}};
  if (groups.size() > 1) {
    patterns = target_patterns(groups);
  }
  std::vector<std::vector<std::string>> targets(schemes.size());
  for (std::size_t i = 0; i < owners.size(); ++i) {
    targets[owners[i]] = std::move(patterns[i]);
  }
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    targets[i].insert(targets[i].end(),
                      schemes[i].embeddings.begin(),
                      schemes[i].embeddings.end());
  }
  return targets;
}

nlohmann::json group_entry(const LayerSpec& spec,
                           std::vector<std::string> targets) {
  return {{"targets", std::move(targets)},
          {"weights", weight_args(spec.weight)},
          {"input_activations",
           spec.input ? input_args(*spec.input) : nlohmann::json()},
          {"output_activations", nullptr}};
}

}  // namespace

nlohmann::json make_config_entry(std::span<const LayerDecision> layers) {
  const std::vector<Scheme> schemes = schemes_of(layers);
  NIBBLE_CHECK(!schemes.empty(),
               kInvalidArgument,
               "compressed-tensors: found no quantized layer to declare");
  std::vector<std::vector<std::string>> targets = targets_of(schemes);
  std::set<std::string_view> words;
  for (const Scheme& scheme : schemes) {
    words.insert(format_word(scheme.spec));
  }
  nlohmann::json groups = nlohmann::json::object();
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    nlohmann::json group = group_entry(schemes[i].spec, std::move(targets[i]));
    // A group's own word needs readers from 0.11 on: only where it tells
    // something.
    if (words.size() > 1) {
      group["format"] = format_word(schemes[i].spec);
    }
    groups[fmt::format("group_{}", i)] = std::move(group);
  }
  return {{"config_groups", std::move(groups)},
          {"format",
           words.size() == 1 ? *words.begin()
                             : std::string_view("mixed-precision")},
          {"global_compression_ratio", nullptr},
          {"ignore", ignore_list(layers)},
          {"kv_cache_scheme", nullptr},
          {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"},
          {"sparsity_config", nlohmann::json::object()},
          {"transform_config", nlohmann::json::object()},
          {"version", kVersion}};
}

}  // namespace nibble::quant::compressed_tensors
