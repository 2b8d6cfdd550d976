#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nibble/backend/backend.h"
#include "nibble/container/checkpoint.h"
#include "nibble/model/linear.h"

namespace nibble::load {

// Makes the layer of one slot from a checkpoint. load/ asks its builders in
// order; the first that claims a slot fills it. Thread-safe.
class LayerBuilder {
 public:
  virtual ~LayerBuilder() = default;

  [[nodiscard]] virtual bool claims(const container::CheckpointReader& reader,
                                    const model::LinearSlot& slot) const = 0;
  [[nodiscard]] virtual std::unique_ptr<model::Linear> build(
      const container::CheckpointReader& reader,
      const model::LinearSlot& slot,
      backend::Backend& backend) const = 0;

  // Names of the tensors that build reads, so that load/ can tell which
  // tensors of a checkpoint nothing uses.
  [[nodiscard]] virtual std::vector<std::string> tensors_of(
      const container::CheckpointReader& reader,
      const std::string& module) const = 0;

  // The same for the embedding table; by default none is claimed.
  [[nodiscard]] virtual std::unique_ptr<model::Embedding> build_embedding(
      const container::CheckpointReader& reader,
      const model::EmbeddingSlot& slot,
      backend::Backend& backend) const;
};

}  // namespace nibble::load
