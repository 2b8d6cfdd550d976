#include "nibble/container/safetensors/writer.h"

#include <algorithm>
#include <utility>

#include "nibble/base/error.h"
#include "nibble/container/safetensors/index.h"

namespace nibble::container {
namespace {

// transformers refuses files that do not name a framework.
const TextMetadata& written_metadata() {
  static const TextMetadata metadata{{"format", "pt"}};
  return metadata;
}

}  // namespace

SafetensorsSetWriter::SafetensorsSetWriter(
    const std::filesystem::path& directory,
    std::span<const OutputFile> files,
    ExistingFiles existing)
    : directory_(directory) {
  std::vector<std::string_view> names;
  for (const OutputFile& file : files) {
    names.emplace_back(file.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice_file = std::adjacent_find(names.begin(), names.end());
  NIBBLE_CHECK(twice_file == names.end(),
               kInvalidArgument,
               "file {}: found twice in one set, expected once",
               printable(*twice_file));
  for (const OutputFile& file : files) {
    with_context((directory / file.name).string(),
                 [&] { add_file(file, existing); });
  }
  std::sort(places_.begin(), places_.end(), [](const auto& a, const auto& b) {
    return a.name < b.name;
  });
  const auto twice = std::adjacent_find(
      places_.begin(), places_.end(), [](const auto& a, const auto& b) {
        return a.name == b.name;
      });
  NIBBLE_CHECK(twice == places_.end(),
               kInvalidArgument,
               "tensor {}: found twice in one set of files, expected once",
               printable(twice->name));
}

void SafetensorsSetWriter::add_file(const OutputFile& file,
                                    ExistingFiles existing) {
  const std::string header =
      serialize_safetensors_header(file.tensors, written_metadata());
  std::uint64_t offset = header.size();
  for (const TensorInfo& tensor : file.tensors) {
    places_.push_back({tensor.name, files_.size(), offset, tensor.bytes});
    NIBBLE_CHECK(!__builtin_add_overflow(offset, tensor.bytes, &offset),
                 kInvalidArgument,
                 "found more bytes than a file can hold");
  }
  const std::filesystem::path path = directory_ / file.name;
  files_.push_back(existing == ExistingFiles::kContinue &&
                           std::filesystem::exists(path)
                       ? File::open_write(path)
                       : File::create(path));
  files_.back().reserve(offset);
  files_.back().write(0, std::as_bytes(std::span(header)));
}

const SafetensorsSetWriter::Place& SafetensorsSetWriter::place_of(
    std::string_view name, std::uint64_t offset, std::uint64_t bytes) const {
  const auto place = std::lower_bound(
      places_.begin(), places_.end(), name, [](const auto& a, auto wanted) {
        return a.name < wanted;
      });
  NIBBLE_CHECK(place != places_.end() && place->name == name,
               kInternal,
               "tensor {}: found none of that name in the files being written",
               printable(name));
  NIBBLE_CHECK(
      offset <= place->bytes && bytes <= place->bytes - offset,
      kInternal,
      "tensor {}: found {} bytes from byte {} to write, expected at most {} in "
      "all",
      printable(name),
      bytes,
      offset,
      place->bytes);
  return *place;
}

void SafetensorsSetWriter::write(std::string_view name,
                                 std::uint64_t offset,
                                 std::span<const std::byte> data) {
  const Place& place = place_of(name, offset, data.size());
  files_[place.file].write(place.offset + offset, data);
}

void SafetensorsSetWriter::read(std::string_view name,
                                std::uint64_t offset,
                                std::span<std::byte> out) const {
  const Place& place = place_of(name, offset, out.size());
  files_[place.file].read(place.offset + offset, out);
}

void SafetensorsSetWriter::sync() {
  for (const File& file : files_) {
    file.sync();
  }
  sync_directory(directory_);
}

void write_safetensors_index(const std::filesystem::path& directory,
                             std::span<const OutputFile> files) {
  SafetensorsIndex index;
  index.total_bytes = 0;
  for (const OutputFile& file : files) {
    for (const TensorInfo& tensor : file.tensors) {
      index.weight_map.emplace(tensor.name, file.name);
      *index.total_bytes += tensor.bytes;
    }
  }
  write_file_atomically(directory / kSafetensorsIndexName,
                        serialize_safetensors_index(index));
}

void write_safetensors(const std::filesystem::path& path,
                       std::span<const NamedTensor> tensors) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  OutputFile file;
  file.name = temporary.filename().string();
  for (const NamedTensor& tensor : tensors) {
    file.tensors.push_back({tensor.name,
                            tensor.view.dtype(),
                            tensor.view.shape(),
                            tensor.view.bytes(),
                            "",
                            0});
  }
  sort_like_reference(file.tensors);
  const std::filesystem::path directory =
      path.has_parent_path() ? path.parent_path() : ".";
  try {
    SafetensorsSetWriter writer(directory, std::span(&file, 1));
    for (const NamedTensor& tensor : tensors) {
      writer.write(tensor.name, 0, tensor.view.byte_span());
    }
    writer.sync();
    rename_file(temporary, path);
  } catch (const Error&) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
}

}  // namespace nibble::container
