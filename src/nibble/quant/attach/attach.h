#pragma once

#include "nibble/load/layer_builder.h"
#include "nibble/quant/core/format.h"

namespace nibble::quant {

// Fills slots with layers that compute from the packed codes of an opened
// quantized checkpoint. The checkpoint must outlive the builder; the layers do
// not need it. Thread-safe.
class QuantizedLayerBuilder : public load::LayerBuilder {
 public:
  explicit QuantizedLayerBuilder(const QuantizedCheckpoint& checkpoint)
      : checkpoint_(checkpoint) {}

  [[nodiscard]] bool claims(const container::CheckpointReader& reader,
                            const model::LinearSlot& slot) const override;
  [[nodiscard]] std::unique_ptr<model::Linear> build(
      const container::CheckpointReader& reader,
      const model::LinearSlot& slot,
      backend::Backend& backend) const override;
  [[nodiscard]] std::vector<std::string> tensors_of(
      const container::CheckpointReader& reader,
      const std::string& module) const override;
  // A table that keeps its codes and decodes the rows that are asked for.
  [[nodiscard]] std::unique_ptr<model::Embedding> build_embedding(
      const container::CheckpointReader& reader,
      const model::EmbeddingSlot& slot,
      backend::Backend& backend) const override;

 private:
  const QuantizedCheckpoint& checkpoint_;
};

}  // namespace nibble::quant
