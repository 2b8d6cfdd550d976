#include "nibble/container/safetensors/reader.h"

#include <algorithm>
#include <array>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/log.h"
#include "nibble/container/safetensors/header.h"
#include "nibble/container/safetensors/index.h"

namespace nibble::container {
namespace {

namespace fs = std::filesystem;

// One file: its descriptor, and the mapping once somebody asked for it.
class Shard {
 public:
  explicit Shard(const fs::path& path)
      : file_(File::open_read(path)), bytes_(file_.size_bytes()) {}

  SafetensorsHeader read_header() const {
    std::array<std::byte, 64> first{};
    const std::span<std::byte> head(
        first.data(), std::min<std::uint64_t>(first.size(), bytes_));
    file_.read(0, head);
    std::string text(safetensors_header_bytes(head, bytes_), '\0');
    file_.read(kSafetensorsLengthBytes,
               std::as_writable_bytes(std::span(text)));
    return parse_safetensors_header(text, bytes_);
  }

  const File& file() const { return file_; }

  // The whole file; made at the first call, then shared.
  std::shared_ptr<const MappedFile> mapping() const {
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<const MappedFile> mapped = mapping_.lock();
    if (mapped == nullptr) {
      mapped = std::make_shared<const MappedFile>(file_);
      NIBBLE_CHECK(mapped->bytes().size() == bytes_,
                   kIo,
                   "{}: found {} bytes, expected the {} that it had when "
                   "opened",
                   file_.path().string(),
                   mapped->bytes().size(),
                   bytes_);
      mapping_ = mapped;
    }
    return mapped;
  }

 private:
  File file_;
  std::uint64_t bytes_;
  mutable std::mutex mutex_;
  // Weak: when no tensor uses the mapping, it goes.
  mutable std::weak_ptr<const MappedFile> mapping_;
};

class SafetensorsReader final : public CheckpointReader {
 public:
  // files: one or more, in the order in which they are listed.
  explicit SafetensorsReader(std::vector<fs::path> files)
      : files_(std::move(files)) {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      with_context(files_[i].string(), [&] { add_file(i); });
    }
    index_names();
  }

  std::span<const TensorInfo> tensors() const override { return tensors_; }

  const std::map<std::string, std::string>& metadata() const override {
    return metadata_;
  }

  std::span<const fs::path> files() const override { return files_; }

  void read(const TensorInfo& tensor,
            std::uint64_t offset,
            std::span<std::byte> out) const override {
    const std::size_t i = index_of(tensor);
    check_range(tensors_[i], offset, out.size());
    shards_[tensors_[i].file]->file().read(offsets_[i] + offset, out);
  }

  std::optional<Tensor> map(const TensorInfo& tensor) const override {
    const std::size_t i = index_of(tensor);
    const TensorInfo& info = tensors_[i];
    const auto alignment =
        static_cast<std::uint64_t>(std::max(8, dtype_bits(info.dtype)) / 8);
    if (offsets_[i] % alignment != 0) {
      return std::nullopt;
    }
    std::shared_ptr<const MappedFile> mapping = shards_[info.file]->mapping();
    const ConstTensorView view(
        mapping->bytes().data() + offsets_[i], info.dtype, info.shape);
    return Tensor(view, std::move(mapping));
  }

  void drop_cache(const TensorInfo& tensor,
                  std::uint64_t offset,
                  std::uint64_t bytes) const override {
    const std::size_t i = index_of(tensor);
    check_range(tensors_[i], offset, bytes);
    shards_[tensors_[i].file]->file().drop_cache(offsets_[i] + offset, bytes);
  }

 private:
  void add_file(std::size_t number) {
    shards_.push_back(std::make_unique<Shard>(files_[number]));
    SafetensorsHeader header = shards_.back()->read_header();
    for (TensorInfo& tensor : header.tensors) {
      tensor.file = number;
      tensors_.push_back(std::move(tensor));
    }
    offsets_.insert(
        offsets_.end(), header.offsets.begin(), header.offsets.end());
    metadata_.merge(header.metadata);
  }

  static void check_range(const TensorInfo& tensor,
                          std::uint64_t offset,
                          std::uint64_t bytes) {
    NIBBLE_CHECK(offset <= tensor.bytes && bytes <= tensor.bytes - offset,
                 kInternal,
                 "tensor {}: found bytes {} to {} wanted, expected at most {}",
                 printable(tensor.name),
                 offset,
                 offset + bytes,
                 tensor.bytes);
  }

  std::vector<fs::path> files_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::uint64_t> offsets_;  // of each tensor, in its file
  std::map<std::string, std::string> metadata_;
};

// The index must name every tensor of its shards, each in its shard.
void check_against_index(const CheckpointReader& reader,
                         const SafetensorsIndex& index) {
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : reader.tensors()) {
    const std::string file = reader.files()[tensor.file].filename().string();
    const auto named = index.weight_map.find(tensor.name);
    NIBBLE_CHECK(named != index.weight_map.end(),
                 kCorruptData,
                 "tensor {}: found in {} but not in the index",
                 printable(tensor.name),
                 file);
    NIBBLE_CHECK(named->second == file,
                 kCorruptData,
                 "tensor {}: found in {}, expected in {} by the index",
                 printable(tensor.name),
                 file,
                 printable(named->second));
    bytes += tensor.bytes;
  }
  for (const auto& [tensor, file] : index.weight_map) {
    NIBBLE_CHECK(reader.find(tensor) != nullptr,
                 kCorruptData,
                 "tensor {}: found in the index but not in {}",
                 printable(tensor),
                 file);
  }
  if (index.total_bytes && *index.total_bytes != bytes) {
    log_warning("{}: found total_size {}, expected {}",
                kSafetensorsIndexName,
                *index.total_bytes,
                bytes);
  }
}

std::unique_ptr<CheckpointReader> open_sharded(const fs::path& directory) {
  const fs::path index_path = directory / kSafetensorsIndexName;
  return with_context(index_path.string(), [&] {
    const SafetensorsIndex index =
        parse_safetensors_index(read_text_file(index_path));
    std::set<std::string> names;
    for (const auto& [tensor, file] : index.weight_map) {
      names.insert(file);
    }
    std::vector<fs::path> files;
    for (const std::string& name : names) {
      files.push_back(directory / name);
      if (!fs::exists(files.back())) {
        fail_with_hint(ErrorCode::kNotFound,
                       "download the model again: a part of it is missing",
                       "found no file {}, expected all {} that the index names",
                       printable(name),
                       names.size());
      }
    }
    auto reader = std::make_unique<SafetensorsReader>(std::move(files));
    check_against_index(*reader, index);
    return reader;
  });
}

// Explains a directory in which there is nothing to open.
[[noreturn]] void refuse_directory(const fs::path& directory) {
  bool pickles = false;
  std::string other;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string extension = entry.path().extension().string();
    pickles = pickles || extension == ".bin" || extension == ".pth" ||
              extension == ".pt";
    if (extension == ".safetensors") {
      other = std::max(other, entry.path().filename().string());
    }
  }
  if (pickles && other.empty()) {
    fail_with_hint(ErrorCode::kUnsupported,
                   "convert the checkpoint to safetensors first",
                   "{}: found weights as PyTorch pickles, expected {}",
                   directory.string(),
                   kSafetensorsSingleName);
  }
  fail_with_hint(
      ErrorCode::kNotFound,
      other.empty() ? "give the directory of a Hugging Face checkpoint"
                    : "download the index of the shards, or give one file",
      "{}: found {}, expected {} or {}",
      directory.string(),
      other.empty() ? "no weights" : "only files such as " + printable(other),
      kSafetensorsSingleName,
      kSafetensorsIndexName);
}

}  // namespace

std::unique_ptr<CheckpointReader> open_safetensors(const fs::path& path) {
  NIBBLE_CHECK(fs::exists(path),
               kNotFound,
               "{}: found no such file or directory",
               path.string());
  if (!fs::is_directory(path)) {
    return std::make_unique<SafetensorsReader>(std::vector<fs::path>{path});
  }
  if (fs::exists(path / kSafetensorsIndexName)) {
    return open_sharded(path);
  }
  if (!fs::exists(path / kSafetensorsSingleName)) {
    refuse_directory(path);
  }
  return std::make_unique<SafetensorsReader>(
      std::vector<fs::path>{path / kSafetensorsSingleName});
}

}  // namespace nibble::container
