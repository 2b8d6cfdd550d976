#include "nibble/quant/attach/attach.h"

#include <optional>
#include <string>
#include <utility>

#include "nibble/base/error.h"
#include "nibble/quant/attach/embedding.h"
#include "nibble/quant/core/registry.h"

namespace nibble::quant {
namespace {

std::optional<Tensor> load_bias(const container::CheckpointReader& reader,
                                const model::LinearSlot& slot) {
  const std::string name = slot.path + ".bias";
  if (!slot.has_bias) {
    NIBBLE_CHECK(reader.find(name) == nullptr,
                 kCorruptData,
                 "tensor {}: found a bias, expected none by the config",
                 printable(name));
    return std::nullopt;
  }
  const container::TensorInfo& bias = reader.get(name);
  NIBBLE_CHECK(bias.shape == Shape{slot.out} && is_weight_dtype(bias.dtype),
               kCorruptData,
               "tensor {}: found {} {}, expected ({}) of BF16, F16 or F32",
               printable(bias.name),
               dtype_name(bias.dtype),
               to_string(bias.shape),
               slot.out);
  // A copy: the layer must not depend on the reader's mapping.
  return reader.load_copy(bias);
}

}  // namespace

bool QuantizedLayerBuilder::claims(
    const container::CheckpointReader& /*reader*/,
    const model::LinearSlot& slot) const {
  return checkpoint_.spec_of(slot.path).has_value();
}

std::unique_ptr<model::Linear> QuantizedLayerBuilder::build(
    const container::CheckpointReader& reader,
    const model::LinearSlot& slot,
    backend::Backend& backend) const {
  const std::optional<LayerSpec> spec = checkpoint_.spec_of(slot.path);
  NIBBLE_CHECK(spec.has_value(),
               kInternal,
               "module {}: found no quantized module of that name",
               slot.path);
  const Shape shape = checkpoint_.weight_shape(slot.path);
  NIBBLE_CHECK((shape == Shape{slot.out, slot.in}),
               kCorruptData,
               "module {}: found a weight of {}, expected ({}, {})",
               slot.path,
               to_string(shape),
               slot.out,
               slot.in);
  const auto codes = [&](std::int64_t first, std::int64_t count) {
    return checkpoint_.unpack(slot.path, first, count);
  };
  return scheme_for(spec->weight)
      .make_linear(*spec,
                   slot.out,
                   slot.in,
                   codes,
                   load_bias(reader, slot),
                   checkpoint_.input_scale(slot.path),
                   backend);
}

std::vector<std::string> QuantizedLayerBuilder::tensors_of(
    const container::CheckpointReader& reader,
    const std::string& module) const {
  if (!checkpoint_.spec_of(module)) {
    return {};
  }
  std::vector<std::string> names = checkpoint_.tensors_of(module);
  std::string bias = module + ".bias";
  if (reader.find(bias) != nullptr) {
    names.push_back(std::move(bias));
  }
  return names;
}

std::unique_ptr<model::Embedding> QuantizedLayerBuilder::build_embedding(
    const container::CheckpointReader& /*reader*/,
    const model::EmbeddingSlot& slot,
    backend::Backend& /*backend*/) const {
  return checkpoint_.spec_of(slot.path)
             ? make_quantized_embedding(checkpoint_, slot)
             : nullptr;
}

}  // namespace nibble::quant
