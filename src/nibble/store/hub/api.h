#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/store/hub/digest.h"

namespace nibble::store::hub {

// A file of a model on the hub.
struct RemoteFile {
  std::string path;  // relative, checked: it stays below the model's directory
  std::optional<std::uint64_t> bytes;
  ContentDigest digest;
};

struct RemoteModel {
  std::string commit;  // full name of the revision
  std::vector<RemoteFile> files;
};

// Reads what GET /api/models/ID/revision/REV?blobs=true answers. A server's
// answer is hostile: kCorruptData for another form, and for paths that are
// absolute, leave the directory, name our own files, or collide.
[[nodiscard]] RemoteModel parse_model(const nlohmann::json& answer,
                                      const std::string& where);

// The files that are wanted: those that fit a pattern of include (when there is
// one), but none of exclude. Patterns are globs over the whole path, in which *
// crosses slashes too. Without include, other forms of the same weights (.bin,
// .pth, .onnx ..., the folders original and onnx) are left out beside
// safetensors. kNotFound for a pattern that fits nothing.
[[nodiscard]] std::vector<RemoteFile> choose(
    const std::vector<RemoteFile>& files,
    const std::vector<std::string>& include,
    const std::vector<std::string>& exclude);

// Where a download keeps its own records: no file of a model may be called so.
inline constexpr const char* kPullRecord = ".nibble-pull.json";
inline constexpr const char* kPartsFolder = ".nibble-parts";

}  // namespace nibble::store::hub
