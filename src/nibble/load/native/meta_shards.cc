#include "nibble/load/native/meta_shards.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "nibble/base/error.h"
#include "nibble/container/torch_pickle/reader.h"

namespace nibble::load {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kShardPrefix = "consolidated.";
constexpr std::string_view kShardSuffix = ".pth";
constexpr std::string_view kScaleSuffix = ".pt";

// The integer between prefix and suffix of a file name, or nothing. Ranks are
// compared as numbers: int4_scales_10.pt sorts before int4_scales_2.pt.
std::optional<int> rank_in(std::string_view name,
                           std::string_view prefix,
                           std::string_view suffix) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix) ||
      name.size() <= prefix.size() + suffix.size()) {
    return std::nullopt;
  }
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  int rank = 0;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), rank);
  return error == std::errc() && end == name.data() + name.size() && rank >= 0
             ? std::optional(rank)
             : std::nullopt;
}

// Files of a directory by rank.
std::map<int, fs::path> ranked_files(const fs::path& directory,
                                     std::string_view prefix,
                                     std::string_view suffix) {
  std::map<int, fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const auto rank = rank_in(name, prefix, suffix);
    if (rank) {
      NIBBLE_CHECK(files.emplace(*rank, entry.path()).second,
                   kCorruptData,
                   "{}: found two files of rank {}",
                   directory.string(),
                   *rank);
    }
  }
  return files;
}

// Throws unless ranks are 0, 1, ... without a gap.
void check_ranks(const fs::path& directory,
                 const std::map<int, fs::path>& files,
                 std::string_view what) {
  int expected = 0;
  for (const auto& [rank, path] : files) {
    if (rank != expected) {
      fail_with_hint(ErrorCode::kNotFound,
                     "download the missing file; every rank holds a part of "
                     "every matrix",
                     "{}: found no {} of rank {}, expected ranks 0 to {}",
                     directory.string(),
                     what,
                     expected,
                     files.rbegin()->first);
    }
    ++expected;
  }
}

// Every rank has the tensors of rank 0, of the same dtype and shape.
void check_alike(const std::vector<MetaShard>& ranks) {
  const auto& first = *ranks[0].weights;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const auto& other = *ranks[r].weights;
    for (const container::TensorInfo& tensor : first.tensors()) {
      const container::TensorInfo* twin = other.find(tensor.name);
      NIBBLE_CHECK(twin != nullptr && twin->dtype == tensor.dtype &&
                       twin->shape == tensor.shape,
                   kCorruptData,
                   "{}: tensor {}: found {}, expected {} {} as in {}",
                   other.files()[0].string(),
                   printable(tensor.name),
                   twin == nullptr ? std::string("none")
                                   : fmt::format("{} {}",
                                                 dtype_name(twin->dtype),
                                                 to_string(twin->shape)),
                   dtype_name(tensor.dtype),
                   to_string(tensor.shape),
                   first.files()[0].string());
    }
    NIBBLE_CHECK(other.tensors().size() == first.tensors().size(),
                 kCorruptData,
                 "{}: found {} tensors, expected {} as in {}",
                 other.files()[0].string(),
                 other.tensors().size(),
                 first.tensors().size(),
                 first.files()[0].string());
  }
}

void open_scales(const fs::path& directory, MetaShards& shards) {
  for (const std::string_view mode : {"int4", "fp8"}) {
    const auto files =
        ranked_files(directory, std::string(mode) + "_scales_", kScaleSuffix);
    if (files.empty()) {
      continue;
    }
    NIBBLE_CHECK(shards.mode.empty(),
                 kCorruptData,
                 "{}: found scale files of int4 and of fp8, expected one kind",
                 directory.string());
    check_ranks(directory, files, std::string(mode) + "_scales file");
    if (files.size() != shards.ranks.size()) {
      fail_with_hint(ErrorCode::kNotFound,
                     "download the scale file of every rank",
                     "{}: found {} {}_scales files, expected {}, one a shard",
                     directory.string(),
                     files.size(),
                     mode,
                     shards.ranks.size());
    }
    shards.mode = std::string(mode) + "_mixed";
    for (const auto& [rank, path] : files) {
      shards.ranks[static_cast<std::size_t>(rank)].scales =
          container::open_torch_file(path);
    }
  }
}

}  // namespace

bool is_meta_directory(const fs::path& directory) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == "consolidated.pth" ||
        rank_in(name, kShardPrefix, kShardSuffix)) {
      return true;
    }
  }
  return false;
}

MetaShards open_meta_shards(const fs::path& directory) {
  auto files = ranked_files(directory, kShardPrefix, kShardSuffix);
  if (files.empty() && fs::exists(directory / "consolidated.pth")) {
    files.emplace(0, directory / "consolidated.pth");
  }
  NIBBLE_CHECK(!files.empty(),
               kNotFound,
               "{}: found no consolidated.NN.pth",
               directory.string());
  check_ranks(directory, files, "shard");
  MetaShards shards;
  for (const auto& [rank, path] : files) {
    shards.ranks.push_back({container::open_torch_file(path), nullptr});
  }
  check_alike(shards.ranks);
  open_scales(directory, shards);
  return shards;
}

}  // namespace nibble::load
