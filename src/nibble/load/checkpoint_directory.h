#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/container/checkpoint.h"

namespace nibble::load {

// A model directory: its config, its tensors, and the files beside them.
// Today Hugging Face directories; Meta's and gpt-fast's join behind the same
// struct.
struct CheckpointDirectory {
  std::filesystem::path path;
  std::unique_ptr<nlohmann::json> config;  // config.json
  std::unique_ptr<container::CheckpointReader> reader;
  // Every other regular file (tokenizer, templates, licence ...), names
  // relative to path, sorted: they are copied byte for byte.
  std::vector<std::filesystem::path> side_files;
};

// Opens a directory. Validates everything that headers tell: kNotFound for a
// missing directory, config.json or shard; kCorruptData for lies.
[[nodiscard]] CheckpointDirectory open_checkpoint(
    const std::filesystem::path& path);

}  // namespace nibble::load
