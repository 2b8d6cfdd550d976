#include "nibble/load/layer_builder.h"

namespace nibble::load {

std::unique_ptr<model::Embedding> LayerBuilder::build_embedding(
    const container::CheckpointReader& /*reader*/,
    const model::EmbeddingSlot& /*slot*/,
    backend::Backend& /*backend*/) const {
  return nullptr;
}

}  // namespace nibble::load
