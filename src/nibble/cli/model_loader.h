#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

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

inline constexpr const char* kModelHelp =
    "Model directory, or gpt-fast's model*.pth";

// How a model is loaded to run.
struct LoadOptions {
  // A scheme of Meta ("int4_mixed", "fp8_mixed") that a dense checkpoint's
  // weights are encoded by as they are loaded.
  std::string quantize = {};
  // Order of int4 codes in gpt-fast's file: "bytes", "cpu-avx512", "cpu-avx2".
  std::string int4_layout = {};
};

// Adds --quantize and --int4-layout.
void add_load_options(CLI::App& command, LoadOptions& options);

// The directory that holds tokenizer and templates of the model at path: path
// itself, or the directory of a file.
[[nodiscard]] std::filesystem::path model_directory(
    const std::filesystem::path& path);

// Loads a dense or quantized model for the processor. Errors as
// load::open_checkpoint, quant::open_quantized and load::load_model;
// kInvalidArgument for an int4_layout where the checkpoint has no such codes.
[[nodiscard]] LoadedModel load_for_running(const std::filesystem::path& path,
                                           const LoadOptions& options = {});

}  // namespace nibble::cli
