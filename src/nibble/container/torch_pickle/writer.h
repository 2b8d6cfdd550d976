#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "nibble/base/file.h"
#include "nibble/container/checkpoint.h"
#include "nibble/container/torch_pickle/zip_directory.h"

namespace nibble::container {

// Writes one file that torch.load reads with weights_only: a dictionary of
// contiguous tensors, one storage each at a multiple of 64 bytes. All sizes
// are known at creation, so data may come in any order from any thread; the
// checksums and the central directory are written by finish(). Bytes depend on
// the tensors alone.
class TorchFileWriter : public CheckpointWriter {
 public:
  TorchFileWriter(const std::filesystem::path& path,
                  std::vector<TensorInfo> tensors);

  // kInternal for a name that was not given or bytes outside the tensor.
  void write(std::string_view name,
             std::uint64_t offset,
             std::span<const std::byte> data) override;
  // Reads the members back for their checksums and completes the archive.
  // To be called once, after the last write.
  void finish();
  void sync() override;

  // Bytes that the file will have.
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }

 private:

  struct Place {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  void add_member(const std::string& name,
                  std::uint64_t bytes,
                  const std::string* content);

  File file_;
  std::string prefix_;
  std::vector<ZipMember> members_;
  std::vector<std::uint64_t> header_offsets_;
  std::unordered_map<std::string, Place> places_;
  std::uint64_t end_ = 0;  // where the central directory begins
  std::uint64_t file_bytes_ = 0;
};

}  // namespace nibble::container
