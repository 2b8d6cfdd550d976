#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/container/checkpoint.h"

namespace nibble::load {

struct NativeForm;

// A model directory: its config, its tensors, and the files beside them. A
// directory in Meta's layout or a file of gpt-fast is seen as the Hugging Face
// form of the same model (native_directory.h).
struct CheckpointDirectory {
  std::filesystem::path path;
  std::unique_ptr<nlohmann::json> config;  // config.json
  // Text of config.json as it stands in the file, or as derived from
  // params.json.
  std::string config_text;
  std::unique_ptr<container::CheckpointReader> reader;
  // Every other regular file (tokenizer, templates, licence ...), names
  // relative to path, sorted: they are copied byte for byte.
  std::vector<std::filesystem::path> side_files;
  // Where reader shows the tensors of the files in another form: the files'
  // own ones, "rank<r>/<name>" and, of scale files, "rank<r>/scales/<name>".
  std::shared_ptr<const container::CheckpointReader> raw;
  // Where reader shows the ranks of a native layout that is to be written
  // (native_form.h).
  std::shared_ptr<const NativeForm> native;
};

// Opens a directory. Validates everything that headers tell: kNotFound for a
// missing directory, config.json or shard; kCorruptData for lies.
[[nodiscard]] CheckpointDirectory open_checkpoint(
    const std::filesystem::path& path);

}  // namespace nibble::load
