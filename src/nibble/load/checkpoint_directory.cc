#include "nibble/load/checkpoint_directory.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/load/native/native_directory.h"

namespace nibble::load {
namespace {

namespace fs = std::filesystem;

// Sub-folders of side files stay shallow; deeper trees are not a checkpoint's.
constexpr int kMaxFolderDepth = 4;
// Receipt of an earlier run of nibble: it describes other files.
constexpr std::string_view kReceiptName = "nibble.json";

// Whether a file holds weights, in any container, or says where they are.
bool holds_weights(const fs::path& path) {
  constexpr std::array<std::string_view, 9> kExtensions{".safetensors",
                                                        ".bin",
                                                        ".pth",
                                                        ".pt",
                                                        ".gguf",
                                                        ".h5",
                                                        ".msgpack",
                                                        ".onnx",
                                                        ".ckpt"};
  const std::string name = path.filename().string();
  const std::string extension = path.extension().string();
  return std::find(kExtensions.begin(), kExtensions.end(), extension) !=
             kExtensions.end() ||
         name.ends_with(".index.json") || name.starts_with("consolidated");
}

// Folders of a checkpoint that repeat its weights in another layout.
bool holds_duplicates(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name == "original" || name == "onnx" || name == "metal";
}

// Adds the side files of folder, which lies at relative below the checkpoint.
void add_side_files(const fs::path& folder,
                    const fs::path& relative,
                    int depth,
                    std::vector<fs::path>& files) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path name = entry.path().filename();
    // Hidden: caches and settings of download tools.
    if (name.string().starts_with(".")) {
      continue;
    }
    // status() follows links to files: hub caches are made of them.
    std::error_code broken_link;
    const fs::file_status status = entry.status(broken_link);
    if (fs::is_directory(status)) {
      // Caches link files only; a linked folder may lead anywhere, even up.
      if (depth < kMaxFolderDepth && !entry.is_symlink() &&
          !holds_duplicates(name)) {
        add_side_files(entry.path(), relative / name, depth + 1, files);
      }
    } else if (fs::is_regular_file(status) && !holds_weights(name)) {
      files.push_back(relative / name);
    }
  }
}

std::vector<fs::path> find_side_files(const fs::path& directory) {
  std::vector<fs::path> files;
  add_side_files(directory, "", 0, files);
  std::erase(files, fs::path("config.json"));
  std::erase(files, fs::path(kReceiptName));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

CheckpointDirectory open_checkpoint(const fs::path& path) {
  NIBBLE_CHECK(fs::exists(path),
               kNotFound,
               "{}: found no such directory",
               path.string());
  CheckpointDirectory checkpoint;
  if (open_native(path, checkpoint)) {
    checkpoint.side_files = find_side_files(checkpoint.path);
    return checkpoint;
  }
  if (!fs::is_directory(path)) {
    fail_with_hint(ErrorCode::kNotFound,
                   "give the directory that holds config.json, or gpt-fast's "
                   "model*.pth",
                   "{}: found a file, expected the directory of a checkpoint",
                   path.string());
  }
  checkpoint.path = path;
  // Weights first: their absence says more than that of config.json.
  checkpoint.reader = container::open_safetensors(path);
  const fs::path config = path / "config.json";
  if (!fs::exists(config)) {
    fail_with_hint(ErrorCode::kNotFound,
                   "download the checkpoint's config.json, too",
                   "{}: found no config.json beside the weights",
                   path.string());
  }
  checkpoint.config =
      std::make_unique<nlohmann::json>(read_json_object(config));
  checkpoint.config_text = read_text_file(config);
  checkpoint.side_files = find_side_files(path);
  return checkpoint;
}

}  // namespace nibble::load
