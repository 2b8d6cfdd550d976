#pragma once

#include <cstdint>
#include <filesystem>

namespace nibble::quant {

// Files that stand in every directory that was written.
inline constexpr const char* kReceiptName = "nibble.json";
inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kParamsName = "params.json";  // of Meta's layout

// Where a result grows until it is complete: "OUT.partial" beside OUT.
[[nodiscard]] std::filesystem::path partial_path(
    const std::filesystem::path& output);

// The output as an absolute path without links, dots and trailing slashes.
[[nodiscard]] std::filesystem::path resolved_output(
    const std::filesystem::path& output);

// Throws kInvalidArgument when output cannot take the result: it is a file, it
// is not empty (unless overwrite, and then only a checkpoint is replaced), or
// it overlaps the source; kIo when its parent is not writable.
void check_output_place(const std::filesystem::path& output,
                        const std::filesystem::path& source,
                        bool overwrite);

// Bytes that files below a directory occupy on disk.
[[nodiscard]] std::uint64_t occupied_bytes(
    const std::filesystem::path& directory);

// Throws kIo with both numbers when fewer than needed_bytes are free where
// output lies; what a partial result occupies there already counts as free.
void check_free_disk(const std::filesystem::path& output,
                     std::uint64_t needed_bytes);

}  // namespace nibble::quant
