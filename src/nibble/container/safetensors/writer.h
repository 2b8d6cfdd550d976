#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/base/files/file.h"
#include "nibble/container/checkpoint.h"
#include "nibble/container/safetensors/header.h"

namespace nibble::container {

// Writes one or more safetensors files of a directory that exists. The
// constructor creates the files at their full size, headers first: a full disk
// shows there (kIo). write() is thread-safe and goes straight to the tensor's
// place. Bytes never written are zero.
//
// Headers carry the metadata that loaders ask for ({"format": "pt"}). Files
// have exactly the reference writer's bytes when sorted by
// sort_like_reference(); in another order a tensor may lie unaligned, and
// readers then copy it instead of mapping it.
class SafetensorsSetWriter final : public CheckpointWriter {
 public:
  // kInvalidArgument: see serialize_safetensors_header; a tensor or a file
  // name that occurs twice.
  SafetensorsSetWriter(const std::filesystem::path& directory,
                       std::span<const OutputFile> files,
                       ExistingFiles existing = ExistingFiles::kReplace);

  // kInternal for a name that was not given or bytes beyond the tensor's end.
  void write(std::string_view name,
             std::uint64_t offset,
             std::span<const std::byte> data) override;
  void read(std::string_view name,
            std::uint64_t offset,
            std::span<std::byte> out) const override;
  // Syncs every file and the directory.
  void sync() override;

 private:
  struct Place {
    std::string name;
    std::size_t file = 0;
    std::uint64_t offset = 0;  // in the file
    std::uint64_t bytes = 0;
  };

  void add_file(const OutputFile& file, ExistingFiles existing);
  // The place of `bytes` bytes at offset of a tensor.
  [[nodiscard]] const Place& place_of(std::string_view name,
                                      std::uint64_t offset,
                                      std::uint64_t bytes) const;

  std::filesystem::path directory_;
  std::vector<File> files_;
  std::vector<Place> places_;  // sorted by name
};

// Writes model.safetensors.index.json for files of a directory, durably.
void write_safetensors_index(const std::filesystem::path& directory,
                             std::span<const OutputFile> files);

// A tensor to write: its name and elements.
struct NamedTensor {
  std::string name;
  ConstTensorView view;
};

// Writes one whole file, sorted like the reference writer: a temporary file
// beside it, sync, rename.
void write_safetensors(const std::filesystem::path& path,
                       std::span<const NamedTensor> tensors);

}  // namespace nibble::container
