#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "nibble/container/checkpoint.h"

namespace nibble::container {

// Containers that sets of files are written in.
enum class FileKind { kSafetensors, kTorch };

// Creates the files of a directory that exists, at their full size.
[[nodiscard]] std::unique_ptr<CheckpointWriter> write_files(
    FileKind kind,
    const std::filesystem::path& directory,
    std::span<const OutputFile> files,
    ExistingFiles existing);

// Bytes that a file will have beside those of its tensors.
[[nodiscard]] std::uint64_t overhead_bytes(FileKind kind,
                                           const OutputFile& file);

}  // namespace nibble::container
