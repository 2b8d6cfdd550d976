#pragma once

#include <filesystem>
#include <memory>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/model/transformer.h"
#include "nibble/quant/core/format.h"

namespace nibble::cli {

// A model ready to run, with what it was made of. Movable.
struct LoadedModel {
  load::CheckpointDirectory checkpoint;
  // Nothing for a dense checkpoint.
  std::unique_ptr<quant::QuantizedCheckpoint> quantized;
  std::unique_ptr<model::Transformer> model;
};

// Loads a dense or quantized model directory for the processor. Errors as
// load::open_checkpoint, quant::open_quantized and load::load_model.
[[nodiscard]] LoadedModel load_for_running(const std::filesystem::path& path);

}  // namespace nibble::cli
