#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "fuzz_entry.h"
#include "nibble/base/error.h"
#include "nibble/quant/recipe/recipe.h"
#include "nibble/quant/recipe/resolve.h"

namespace {

using namespace nibble;         // NOLINT: a program, not a header
using namespace nibble::quant;  // NOLINT

constexpr std::array<std::string_view, 2> kGateUp = {"gate_proj", "up_proj"};
constexpr std::array<std::span<const std::string_view>, 1> kFused = {kGateUp};
constexpr std::array<model::Role, 1> kKeep = {model::Role::kHead};

// Every linear of this model has some trait: a size that no group divides, an
// expert, a fused sibling, a place on the keep list.
std::vector<LinearModule> linears() {
  using model::Role;
  return {{"model.layers.0.mlp.gate_proj", Role::kMlp, 512, 256},
          {"model.layers.0.mlp.up_proj", Role::kMlp, 512, 256},
          {"model.layers.0.mlp.down_proj", Role::kMlp, 256, 576},
          {"model.layers.1.experts.0.w1", Role::kExpert, 96, 256},
          {"model.layers.1.experts.0.w2", Role::kExpert, 256, 96},
          {"model.layers.1.experts.1.w1", Role::kExpert, 96, 256},
          {"odd", Role::kOther, 3, 7},
          {"lm_head", Role::kHead, 1000, 256}};
}

void check_decisions(const Recipe& recipe) {
  model::Family family;
  family.name = "fuzz";
  family.keep_dense = kKeep;
  family.fused = kFused;
  const std::vector<LinearModule> modules = linears();
  const std::vector<Decision> decisions = resolve(recipe, family, modules);
  fuzz_require(decisions.size() == modules.size());
  std::size_t quantized = 0;
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    const Decision& decision = decisions[i];
    fuzz_require(!decision.reason.empty());
    if (decision.spec) {
      ++quantized;
      const NumberSpec& weight = decision.spec->weight;
      fuzz_require(weight.grain != Grain::kGroup ||
                   modules[i].columns % weight.group == 0);
    }
  }
  fuzz_require(quantized > 0);
  fuzz_require(decisions[0].spec == decisions[1].spec);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  // The brace keeps the text from being a file's name.
  std::string text = "{";
  text.append(reinterpret_cast<const char*>(data), size);
  try {
    const Recipe recipe = load_recipe(text);
    const nlohmann::json form = to_json(recipe);
    fuzz_require(to_json(parse_recipe(form)) == form);
    check_decisions(recipe);
  } catch (const Error& error) {
    fuzz_require(error.code() != ErrorCode::kInternal);
  }
  return 0;
}
