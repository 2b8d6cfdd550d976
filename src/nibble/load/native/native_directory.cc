#include "nibble/load/native/native_directory.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/container/torch_pickle/reader.h"
#include "nibble/container/union.h"
#include "nibble/load/native/gpt_fast_models.h"
#include "nibble/load/native/meta_config.h"
#include "nibble/load/native/meta_shards.h"
#include "nibble/load/native/meta_view.h"

namespace nibble::load {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_gpt_fast_name(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("model") && path.extension() == ".pth";
}

// gpt-fast's file at path: itself, or the only one in a directory.
fs::path find_gpt_fast_file(const fs::path& path) {
  if (!fs::is_directory(path)) {
    return is_gpt_fast_name(path) ? path : fs::path();
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (is_gpt_fast_name(entry.path())) {
      files.push_back(entry.path());
    }
  }
  if (files.size() > 1) {
    std::sort(files.begin(), files.end());
    std::string names;
    for (const fs::path& file : files) {
      names += (names.empty() ? "" : ", ") + file.filename().string();
    }
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "give the path of one of these files",
                   "{}: found {}, expected one checkpoint",
                   path.string(),
                   names);
  }
  return files.empty() ? fs::path() : files[0];
}

bool has_safetensors(const fs::path& directory) {
  return fs::exists(directory / "model.safetensors") ||
         fs::exists(directory / "model.safetensors.index.json");
}

// A file of gpt-fast as the one rank of a set of shards.
MetaShards open_gpt_fast(const fs::path& file) {
  MetaShards shards;
  shards.ranks.push_back({container::open_torch_file(file), nullptr});
  for (const auto& tensor : shards.ranks[0].weights->tensors()) {
    if (tensor.name.ends_with(".scales") ||
        tensor.name.ends_with(".scales_and_zeros")) {
      shards.mode = "gpt-fast";
    }
  }
  return shards;
}

json find_config(const fs::path& directory,
                 const MetaShards& shards,
                 bool gpt_fast) {
  if (fs::exists(directory / "config.json")) {
    return read_json_object(directory / "config.json");
  }
  if (fs::exists(directory / "params.json")) {
    return config_from_params(read_json_object(directory / "params.json"),
                              shards);
  }
  if (gpt_fast) {
    return config_from_params(
        gpt_fast_params(fs::absolute(directory).lexically_normal()), shards);
  }
  fail_with_hint(ErrorCode::kNotFound,
                 "copy params.json from the checkpoint that the shards were "
                 "made from",
                 "{}: found no params.json beside the shards",
                 directory.string());
}

// All tensors as they are in the files.
std::shared_ptr<const container::CheckpointReader> raw_tensors(
    const MetaShards& shards) {
  std::vector<container::NamedReader> readers;
  for (std::size_t r = 0; r < shards.ranks.size(); ++r) {
    readers.push_back({fmt::format("rank{}/", r), shards.ranks[r].weights});
    if (shards.ranks[r].scales) {
      readers.push_back(
          {fmt::format("rank{}/scales/", r), shards.ranks[r].scales});
    }
  }
  return std::make_shared<container::UnionReader>(std::move(readers));
}

// The entry by which formats recognise packed weights.
json declaration(const MetaShards& shards) {
  if (shards.mode == "gpt-fast") {
    return {{"quant_method", "gpt-fast"}};
  }
  return {{"quant_method", "meta"},
          {"mode", shards.mode},
          {"ranks", shards.ranks.size()}};
}

bool has_packed_head(const MetaShards& shards) {
  const container::CheckpointReader& weights = *shards.ranks[0].weights;
  return weights.find("output.scales") != nullptr ||
         weights.find("output.scales_and_zeros") != nullptr;
}

}  // namespace

bool open_native(const fs::path& path, CheckpointDirectory& checkpoint) {
  const bool directory = fs::is_directory(path);
  if (directory && has_safetensors(path)) {
    return false;
  }
  const bool meta = directory && is_meta_directory(path);
  const fs::path file = meta ? fs::path() : find_gpt_fast_file(path);
  if (!meta && file.empty()) {
    return false;
  }
  checkpoint.path = meta                     ? path
                    : file.has_parent_path() ? file.parent_path()
                                             : fs::path(".");
  const MetaShards shards = meta ? open_meta_shards(path) : open_gpt_fast(file);
  with_context(path.string(), [&] {
    json config = find_config(checkpoint.path, shards, !meta);
    checkpoint.config_text =
        fs::exists(checkpoint.path / "config.json")
            ? read_text_file(checkpoint.path / "config.json")
            : config.dump(2) + "\n";
    if (!shards.mode.empty()) {
      config["quantization_config"] = declaration(shards);
      // gpt-fast quantizes a copy of a tied head, which then differs.
      if (has_packed_head(shards)) {
        config["tie_word_embeddings"] = false;
      }
    }
    checkpoint.reader = view_as_hugging_face(shards, config);
    checkpoint.raw = raw_tensors(shards);
    checkpoint.config = std::make_unique<json>(std::move(config));
  });
  return true;
}

}  // namespace nibble::load
