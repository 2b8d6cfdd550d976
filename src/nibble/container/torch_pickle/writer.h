#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nibble/base/files/file.h"
#include "nibble/container/checkpoint.h"
#include "nibble/container/torch_pickle/zip_directory.h"

namespace nibble::container {

// Where everything lies in a file that TorchFileWriter writes, known from the
// tensors alone.
struct TorchFilePlan {
  std::vector<ZipMember> members;  // checksums are 0
  std::vector<std::uint64_t> header_offsets;
  std::string pickle;
  std::size_t first_tensor = 0;        // index into members
  std::uint64_t directory_offset = 0;  // end of the last member
  std::uint64_t file_bytes = 0;
};

// The plan of a file; its tensors are named without file.prefix in it.
[[nodiscard]] TorchFilePlan plan_torch_file(const OutputFile& file);

// Writes one file that torch.load reads with weights_only: a dictionary of
// contiguous tensors, one storage each at a multiple of 64 bytes. All sizes
// are known at creation, so data may come in any order from any thread; the
// checksums and the central directory are written by finish(). Bytes depend on
// the tensors alone.
class TorchFileWriter final : public CheckpointWriter {
 public:
  // file.name is a path relative to directory. kInternal for a tensor that
  // occurs twice or lacks the prefix.
  TorchFileWriter(const std::filesystem::path& directory,
                  const OutputFile& file,
                  ExistingFiles existing = ExistingFiles::kReplace);

  // kInternal for a name that was not given or bytes outside the tensor.
  void write(std::string_view name,
             std::uint64_t offset,
             std::span<const std::byte> data) override;
  void read(std::string_view name,
            std::uint64_t offset,
            std::span<std::byte> out) const override;
  // Reads the members back for their checksums, and completes the archive.
  void finish() override;
  void sync() override;

 private:
  // The place in the file of `bytes` bytes at offset of a tensor.
  [[nodiscard]] std::uint64_t place_of(std::string_view name,
                                       std::uint64_t offset,
                                       std::uint64_t bytes) const;
  void finish_member(std::size_t member);

  TorchFilePlan plan_;
  File file_;
  std::unordered_map<std::string, std::size_t> members_;  // by tensor name
};

// Writes the torch files of a directory that exists.
class TorchSetWriter final : public CheckpointWriter {
 public:
  TorchSetWriter(const std::filesystem::path& directory,
                 std::span<const OutputFile> files,
                 ExistingFiles existing = ExistingFiles::kReplace);

  void write(std::string_view name,
             std::uint64_t offset,
             std::span<const std::byte> data) override;
  void read(std::string_view name,
            std::uint64_t offset,
            std::span<std::byte> out) const override;
  void finish() override;
  // Syncs every file and the directory.
  void sync() override;

 private:
  [[nodiscard]] TorchFileWriter& file_of(std::string_view name) const;

  std::filesystem::path directory_;
  std::vector<std::unique_ptr<TorchFileWriter>> files_;
  std::unordered_map<std::string, std::size_t> file_by_name_;
};

}  // namespace nibble::container
