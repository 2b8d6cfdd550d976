#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "nibble/cli/screen/session.h"
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
    "Directory, gpt-fast's model*.pth, or a name: in the store, or OWNER/NAME";

// Puts the path in the place of what the user typed for a model: a path, or a
// name that store::resolve_model knows.
void resolve(std::string& model);

// How a model is loaded to run.
struct LoadOptions {
  // A recipe: the version of the store that it makes runs instead. Or one of
  // Meta's schemes, int4_mixed and fp8_mixed: the experts of a dense checkpoint
  // are encoded as they are loaded.
  std::string quantize = {};
  // Order of int4 codes in gpt-fast's file: "bytes", "cpu-avx512", "cpu-avx2".
  std::string int4_layout = {};
};

// Adds --quantize and --int4-layout.
void add_load_options(CLI::App& command, LoadOptions& options);

// As resolve, and with options.quantize the path of the version in the store,
// which is made when there is none; standard error says which it is.
void resolve_to_run(std::string& model,
                    const LoadOptions& options,
                    const Session& session);

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
