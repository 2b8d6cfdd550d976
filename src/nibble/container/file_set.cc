#include "nibble/container/file_set.h"

#include "nibble/container/safetensors/writer.h"
#include "nibble/container/torch_pickle/writer.h"

namespace nibble::container {

std::unique_ptr<CheckpointWriter> write_files(
    FileKind kind,
    const std::filesystem::path& directory,
    std::span<const OutputFile> files,
    ExistingFiles existing) {
  if (kind == FileKind::kTorch) {
    return std::make_unique<TorchSetWriter>(directory, files, existing);
  }
  return std::make_unique<SafetensorsSetWriter>(directory, files, existing);
}

std::uint64_t overhead_bytes(FileKind kind, const OutputFile& file) {
  if (kind == FileKind::kSafetensors) {
    return serialize_safetensors_header(file.tensors, {}).size();
  }
  std::uint64_t bytes = plan_torch_file(file).file_bytes;
  for (const TensorInfo& tensor : file.tensors) {
    bytes -= tensor.bytes;
  }
  return bytes;
}

}  // namespace nibble::container
