#include "nibble/load/native/gpt_fast_models.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"

namespace nibble::load {
namespace {

struct KnownModel {
  std::string_view name;
  std::int64_t layers;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t dim;
  double rope_theta;
  bool scaled_rope = false;
};

// Vocabulary and MLP width are read off the tensors.
constexpr std::array kModels{
    KnownModel{"CodeLlama-7b-Python-hf", 32, 32, 32, 4096, 1e6},
    KnownModel{"7B", 32, 32, 32, 4096, 1e4},
    KnownModel{"13B", 40, 40, 40, 5120, 1e4},
    KnownModel{"30B", 60, 52, 52, 6656, 1e4},
    KnownModel{"34B", 48, 64, 8, 8192, 1e6},
    KnownModel{"70B", 80, 64, 8, 8192, 1e4},
    KnownModel{"Mistral-7B", 32, 32, 8, 4096, 1e4},
    KnownModel{"stories15M", 6, 6, 6, 288, 1e4},
    KnownModel{"stories110M", 12, 12, 12, 768, 1e4},
    KnownModel{"llama-3-8b", 32, 32, 8, 4096, 5e5},
    KnownModel{"llama-3-70b", 80, 64, 8, 8192, 5e5},
    KnownModel{"llama-3.1-8b", 32, 32, 8, 4096, 5e5, true},
    KnownModel{"llama-3.1-70b", 80, 64, 8, 8192, 5e5, true},
    KnownModel{"llama-3.1-405b", 126, 128, 8, 16384, 5e5, true},
};

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return out;
}

const KnownModel& find_model(const std::string& name) {
  const KnownModel* best = nullptr;
  bool tie = false;
  for (const KnownModel& model : kModels) {
    if (name == model.name) {
      return model;
    }
    if (lower(name).find(lower(model.name)) != std::string::npos) {
      tie = best != nullptr && best->name.size() == model.name.size();
      best = best == nullptr || model.name.size() > best->name.size() ? &model
                                                                      : best;
    }
  }
  constexpr std::string_view kHint =
      "put config.json or params.json beside the file: they win over names";
  if (best == nullptr) {
    std::string known;
    for (const KnownModel& model : kModels) {
      known += known.empty() ? "" : ", ";
      known += model.name;
    }
    fail_with_hint(ErrorCode::kNotFound,
                   kHint,
                   "directory {}: found no known model in its name, expected "
                   "one of {}",
                   printable(name),
                   known);
  }
  if (tie) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   kHint,
                   "directory {}: found two models in its name",
                   printable(name));
  }
  return *best;
}

}  // namespace

nlohmann::json gpt_fast_params(const std::filesystem::path& directory) {
  const std::string name = directory.has_filename()
                               ? directory.filename().string()
                               : directory.parent_path().filename().string();
  const KnownModel& model = find_model(name);
  nlohmann::json params{{"dim", model.dim},
                        {"n_layers", model.layers},
                        {"n_heads", model.heads},
                        {"n_kv_heads", model.kv_heads},
                        {"norm_eps", 1e-5},
                        {"rope_theta", model.rope_theta}};
  if (model.scaled_rope) {
    params["use_scaled_rope"] = true;
    params["rope_scaling_factor"] = 8;
    params["rope_high_freq_factor"] = 4;
  }
  return params;
}

}  // namespace nibble::load
