#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "nibble/base/files/mapping_registry.h"

namespace nibble {

// An open regular file. All operations are positional and may be called from
// several threads; all throw kIo (kNotFound when a file to read is absent)
// with the path and the system's reason; so does a read past the end of the
// file: callers ask for bytes that were there, so it shrank meanwhile.
class File {
 public:
  static File open_read(const std::filesystem::path& path);
  // Creates the file, or empties an existing one.
  static File create(const std::filesystem::path& path);
  // Opens an existing file for reading and positional writing, as it is.
  static File open_write(const std::filesystem::path& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  [[nodiscard]] std::uint64_t size_bytes() const;
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  void write(std::uint64_t offset, std::span<const std::byte> data) const;
  // Reserves disk space up to size and sets the file's length; kIo when the
  // disk is full. Falls back to setting the length alone where the file
  // system cannot reserve.
  void reserve(std::uint64_t size_bytes) const;
  // Makes content durable (fsync).
  void sync() const;
  // Tells the kernel that cached pages of this range are not needed again.
  void drop_cache(std::uint64_t offset, std::uint64_t bytes) const;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  File(int descriptor, std::filesystem::path path);

  int descriptor_ = -1;
  std::filesystem::path path_;
};

// A file mapped for reading. Bytes stay valid while the object lives. The
// pages count as resident memory once touched. Touching bytes that the file
// lost since then raises SIGBUS, for which mapped_file_at() names the file.
class MappedFile {
 public:
  explicit MappedFile(const File& file);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {data_, size_};
  }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::unique_ptr<const MappedRange> range_;
};

// Whole content of a small text file. kCorruptData above limit_bytes.
[[nodiscard]] std::string read_text_file(
    const std::filesystem::path& path,
    std::uint64_t limit_bytes = std::uint64_t{1} << 28);

// Writes path whole: a temporary file beside it, fsync, rename.
void write_file_atomically(const std::filesystem::path& path,
                           std::string_view content);

// Renames within one file system, replacing a file of that name, durably
// (syncs the parent directory). Works for directories, too.
void rename_file(const std::filesystem::path& from,
                 const std::filesystem::path& to);

// fsync of a directory, so that names in it are durable.
void sync_directory(const std::filesystem::path& path);

// Free bytes for this user on the file system that holds path (or its nearest
// existing parent).
[[nodiscard]] std::uint64_t free_disk_bytes(const std::filesystem::path& path);

}  // namespace nibble
