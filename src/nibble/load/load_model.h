#pragma once

#include <memory>
#include <span>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/load/layer_builder.h"
#include "nibble/model/transformer.h"

namespace nibble::load {

// Fills every slot of a new model from checkpoint: each by the first of
// builders that claims it, else from its dense weight (mapped, not copied,
// where the container can; stacked experts are cut and transposed). Checks
// every shape first; kNotFound names a missing tensor, kCorruptData one that
// nothing consumed or a NaN scale.
[[nodiscard]] std::unique_ptr<model::Transformer> load_model(
    const CheckpointDirectory& checkpoint,
    std::span<const LayerBuilder* const> builders,
    backend::Backend& backend);

}  // namespace nibble::load
