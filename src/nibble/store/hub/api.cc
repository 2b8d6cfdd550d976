#include "nibble/store/hub/api.h"

#include <algorithm>
#include <array>
#include <fnmatch.h>
#include <set>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"

namespace nibble::store::hub {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFiles = 100'000;
constexpr std::size_t kMaxPathBytes = 1024;
constexpr std::size_t kMaxPartBytes = 200;

// Why a path from a server is not followed, or "".
std::string objection(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes) {
    return "an empty or overlong path";
  }
  if (path.front() == '/' || path.find('\\') != std::string_view::npos) {
    return "an absolute path";
  }
  if (std::any_of(path.begin(), path.end(), [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
      })) {
    return "control characters";
  }
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t slash = std::min(path.find('/', from), path.size());
    const std::string_view part = path.substr(from, slash - from);
    if (part.empty() || part == "." || part == ".." ||
        part.size() > kMaxPartBytes) {
      return "a path that leaves its directory";
    }
    if (part == kPullRecord || part == kPartsFolder) {
      return "a name that nibble keeps for itself";
    }
    from = slash + 1;
  }
  return "";
}

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  fail_with_hint(ErrorCode::kCorruptData,
                 "this is no hub of models, or one that must not be trusted",
                 "{}: found {}",
                 where,
                 why);
}

ContentDigest digest_from(const json& entry) {
  const json lfs = entry.value("lfs", json());
  const json sha256 = lfs.is_object() ? lfs.value("sha256", json()) : json();
  if (sha256.is_string()) {
    return digest_of_etag(sha256.get<std::string>());
  }
  // Of an LFS file it would be the digest of the pointer.
  const json blob = entry.value("blobId", json());
  return blob.is_string() && lfs.is_null()
             ? digest_of_etag(blob.get<std::string>())
             : ContentDigest{};
}

RemoteFile file_from(const json& entry, const std::string& where) {
  if (!entry.is_object() || !entry.value("rfilename", json()).is_string()) {
    refuse(where, "an entry of siblings without rfilename");
  }
  RemoteFile file;
  file.path = entry.at("rfilename").get<std::string>();
  if (const std::string why = objection(file.path); !why.empty()) {
    refuse(where, why + " in a file's name: " + printable(file.path));
  }
  const json size = entry.value("size", json());
  if (size.is_number_integer() && size >= 0) {
    file.bytes = size.get<std::uint64_t>();
  }
  file.digest = digest_from(entry);
  return file;
}

// Two files of one path, or a file where another needs a folder.
void refuse_collisions(const std::vector<RemoteFile>& files,
                       const std::string& where) {
  std::set<std::string> paths;
  std::set<std::string> folders;
  for (const RemoteFile& file : files) {
    if (!paths.insert(file.path).second) {
      refuse(where, "a file twice: " + printable(file.path));
    }
    for (std::size_t slash = file.path.find('/'); slash != std::string::npos;
         slash = file.path.find('/', slash + 1)) {
      folders.insert(file.path.substr(0, slash));
    }
  }
  for (const std::string& folder : folders) {
    if (paths.contains(folder)) {
      refuse(where, "a file that is a folder, too: " + printable(folder));
    }
  }
}

bool fits(const std::string& pattern, const std::string& path) {
  return ::fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

// Weights again, in a form that is not needed beside safetensors.
bool repeats_weights(std::string_view path) {
  constexpr std::array<std::string_view, 11> kEndings{".bin",
                                                      ".pt",
                                                      ".pth",
                                                      ".ckpt",
                                                      ".h5",
                                                      ".msgpack",
                                                      ".ot",
                                                      ".onnx",
                                                      ".onnx_data",
                                                      ".tflite",
                                                      ".gguf"};
  constexpr std::array<std::string_view, 4> kFolders{
      "original/", "onnx/", "metal/", "coreml/"};
  return std::any_of(kEndings.begin(),
                     kEndings.end(),
                     [&](auto ending) { return path.ends_with(ending); }) ||
         std::any_of(kFolders.begin(), kFolders.end(), [&](auto folder) {
           return path.starts_with(folder);
         });
}

}  // namespace

RemoteModel parse_model(const json& answer, const std::string& where) {
  RemoteModel model;
  const json commit = answer.is_object() ? answer.value("sha", json()) : json();
  if (!commit.is_string() || digest_of_etag(commit).git_sha1.empty()) {
    refuse(where, "no commit (sha) of 40 digits");
  }
  model.commit = commit.get<std::string>();
  const json siblings = answer.value("siblings", json());
  if (!siblings.is_array() || siblings.size() > kMaxFiles) {
    refuse(where, "no list of files (siblings)");
  }
  for (const json& entry : siblings) {
    model.files.push_back(file_from(entry, where));
  }
  std::sort(
      model.files.begin(),
      model.files.end(),
      [](const RemoteFile& a, const RemoteFile& b) { return a.path < b.path; });
  refuse_collisions(model.files, where);
  return model;
}

std::vector<RemoteFile> choose(const std::vector<RemoteFile>& files,
                               const std::vector<std::string>& include,
                               const std::vector<std::string>& exclude) {
  for (const auto* patterns : {&include, &exclude}) {
    for (const std::string& pattern : *patterns) {
      if (std::none_of(files.begin(), files.end(), [&](const auto& file) {
            return fits(pattern, file.path);
          })) {
        fail_with_hint(ErrorCode::kNotFound,
                       "quote patterns, so that the shell leaves them alone",
                       "--{} {}: found no file of that name in the model",
                       patterns == &include ? "include" : "exclude",
                       printable(pattern));
      }
    }
  }
  const bool has_safetensors =
      std::any_of(files.begin(), files.end(), [](const RemoteFile& file) {
        return file.path.ends_with(".safetensors");
      });
  std::vector<RemoteFile> chosen;
  for (const RemoteFile& file : files) {
    const auto fits_one = [&](const std::vector<std::string>& patterns) {
      return std::any_of(patterns.begin(),
                         patterns.end(),
                         [&](const auto& one) { return fits(one, file.path); });
    };
    const bool wanted = include.empty()
                            ? !(has_safetensors && repeats_weights(file.path))
                            : fits_one(include);
    if (wanted && !fits_one(exclude)) {
      chosen.push_back(file);
    }
  }
  NIBBLE_CHECK(!chosen.empty(),
               kNotFound,
               "pull: found no file that is wanted, expected at least one");
  return chosen;
}

}  // namespace nibble::store::hub
