#include "nibble/quant/attach/encode_on_load.h"

#include <cmath>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/model/config.h"
#include "nibble/model/family.h"
#include "nibble/quant/core/mixed_spec.h"
#include "nibble/quant/core/registry.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

void refuse_non_finite(const std::string& module, ConstTensorView weight) {
  std::vector<float> row(static_cast<std::size_t>(weight.dim(1)));
  for (std::int64_t r = 0; r < weight.dim(0); ++r) {
    convert_to_float(weight.rows(r, 1), row);
    for (const float value : row) {
      NIBBLE_CHECK(std::isfinite(value),
                   kCorruptData,
                   "module {}: found {} in row {} of the weight, expected "
                   "finite numbers",
                   printable(module),
                   value,
                   r);
    }
  }
}

}  // namespace

EncodingLayerBuilder::EncodingLayerBuilder(
    const load::CheckpointDirectory& checkpoint,
    ChooseSpec choose,
    Numerics numerics)
    : dense_(checkpoint), choose_(std::move(choose)), numerics_(numerics) {}

bool EncodingLayerBuilder::claims(const container::CheckpointReader& /*reader*/,
                                  const model::LinearSlot& slot) const {
  return choose_(slot.path).has_value();
}

std::unique_ptr<model::Linear> EncodingLayerBuilder::build(
    const container::CheckpointReader& reader,
    const model::LinearSlot& slot,
    backend::Backend& backend) const {
  const LayerSpec spec = choose_(slot.path).value();
  dense_.check(reader, slot);
  const Scheme& scheme = scheme_for(spec.weight);
  with_context(slot.path, [&] { scheme.check(spec, slot.out, slot.in); });
  const Tensor weight = dense_.load_weight(reader, slot);
  refuse_non_finite(slot.path, weight.view());
  const auto codes = [&](std::int64_t first, std::int64_t count) {
    return scheme.encode(spec.weight,
                         weight.view().rows(first, count),
                         {numerics_, std::nullopt, std::nullopt});
  };
  std::optional<Tensor> bias;
  if (slot.has_bias) {
    bias = reader.load_copy(reader.get(slot.path + ".bias"));
  }
  return scheme.make_linear(
      spec, slot.out, slot.in, codes, std::move(bias), std::nullopt, backend);
}

std::vector<std::string> EncodingLayerBuilder::tensors_of(
    const container::CheckpointReader& reader,
    const std::string& module) const {
  return dense_.tensors_of(reader, module);
}

ChooseSpec choose_mixed(std::string_view scheme,
                        const load::CheckpointDirectory& checkpoint,
                        std::int64_t ranks) {
  const model::ModelConfig config = model::parse_config(*checkpoint.config);
  const model::Family& family = model::family_of(*checkpoint.config);
  const bool int4 = scheme == "int4_mixed";
  const bool experts = config.experts > 0;
  if (!int4 && scheme != "fp8_mixed") {
    fail(ErrorCode::kInvalidArgument,
         "scheme: found {}, expected int4_mixed or fp8_mixed",
         printable(scheme));
  }
  if (int4 && !experts) {
    fail_with_hint(ErrorCode::kUnsupported,
                   "fp8_mixed works for it",
                   "int4_mixed: found a model without experts, expected "
                   "Llama 4");
  }
  const auto last = static_cast<int>(config.layers.size()) - 1;
  return [=, &family, given = *checkpoint.config](
             const std::string& module) -> std::optional<LayerSpec> {
    const model::TensorPlace place =
        model::place_of(family, given, module + ".weight", {1, 1});
    const bool expert = place.role == model::Role::kExpert;
    const bool chosen =
        int4 ? expert || place.role == model::Role::kSharedExpert
             : (experts ? expert : place.role == model::Role::kMlp) &&
                   place.layer != 0 && place.layer != last;
    if (!chosen) {
      return std::nullopt;
    }
    const bool down = module.ends_with("down_proj");
    const std::int64_t width =
        experts
            ? config.expert_intermediate
            : config.layers[static_cast<std::size_t>(place.layer)].intermediate;
    const std::int64_t inputs = down ? width : config.hidden;
    const std::int64_t rank_inputs = down ? inputs / ranks : inputs;
    if (!int4) {
      return fp8_mixed_spec(inputs, rank_inputs);
    }
    return with_context(printable(module), [&] {
      return int4_mixed_spec(int4_mixed_group(rank_inputs));
    });
  };
}

}  // namespace nibble::quant
