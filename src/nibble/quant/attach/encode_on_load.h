#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "nibble/load/dense_builder.h"
#include "nibble/load/layer_builder.h"
#include "nibble/quant/core/number_spec.h"

namespace nibble::quant {

// The spec that a linear of a dense checkpoint gets, by its module name;
// nothing: it stays dense.
using ChooseSpec =
    std::function<std::optional<LayerSpec>(const std::string& module)>;

// Fills slots of a dense checkpoint with layers that compute from codes: each
// weight is read, encoded and let go before the next one. The checkpoint must
// outlive it; the layers do not need it.
class EncodingLayerBuilder final : public load::LayerBuilder {
 public:
  EncodingLayerBuilder(const load::CheckpointDirectory& checkpoint,
                       ChooseSpec choose,
                       Numerics numerics = Numerics::kExact);

  [[nodiscard]] bool claims(const container::CheckpointReader& reader,
                            const model::LinearSlot& slot) const override;
  // kCorruptData for a weight that is not finite; else as
  // load::DenseBuilder::check and Scheme::check.
  [[nodiscard]] std::unique_ptr<model::Linear> build(
      const container::CheckpointReader& reader,
      const model::LinearSlot& slot,
      backend::Backend& backend) const override;
  [[nodiscard]] std::vector<std::string> tensors_of(
      const container::CheckpointReader& reader,
      const std::string& module) const override;

 private:
  load::DenseBuilder dense_;
  ChooseSpec choose_;
  Numerics numerics_;
};

// What Meta's "int4_mixed" or "fp8_mixed" gives each linear of a checkpoint
// whose matrices are cut over `ranks` ranks: the specs with which its quantized
// shards are read (docs/formats/meta.md). kInvalidArgument for another name,
// kUnsupported for a model that the scheme is not for.
[[nodiscard]] ChooseSpec choose_mixed(
    std::string_view scheme,
    const load::CheckpointDirectory& checkpoint,
    std::int64_t ranks);

}  // namespace nibble::quant
