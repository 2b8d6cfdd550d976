#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace nibble::quant {

struct WriteProbe {
  std::uint64_t bytes = 0;
  double seconds = 0;  // syncing included
  std::filesystem::path directory;
};

// The nearest directory that exists: directory, or one above it.
[[nodiscard]] std::filesystem::path existing_directory(
    const std::filesystem::path& directory);

// Writes data again and again to a file without a name in an existing
// directory, for at most most_seconds or most_bytes, and syncs it. 0 bytes
// where the directory cannot be written to.
[[nodiscard]] WriteProbe probe_write(const std::filesystem::path& directory,
                                     std::span<const std::byte> data,
                                     std::uint64_t most_bytes,
                                     double most_seconds);

}  // namespace nibble::quant
