#include "nibble/base/files/file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

#include "nibble/base/error.h"

namespace nibble {
namespace {

// Writes of fewer bytes are left to the system, which joins them.
constexpr std::size_t kLeastWritebackBytes = 256 << 10;
// The kernel moves at most 2 GiB a call; smaller pieces stay interruptible.
constexpr std::size_t kMaxTransferBytes = std::size_t{1} << 30;

// Opens with close-on-exec; refuses anything but regular files.
int open_regular(const std::filesystem::path& path, int flags) {
  // Without O_NONBLOCK a named pipe would be waited for.
  const int descriptor =
      ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666);
  if (descriptor < 0) {
    NIBBLE_CHECK(errno != ENOENT || (flags & O_CREAT) != 0,
                 kNotFound,
                 "{}: found no such file",
                 path.string());
    fail_errno("open", path.string());
  }

  struct stat status {};

  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    fail(ErrorCode::kIo,
         "{}: found something else, expected a regular file",
         path.string());
  }
  return descriptor;
}

}  // namespace

File::File(int descriptor, std::filesystem::path path)
    : descriptor_(descriptor), path_(std::move(path)) {}

File File::open_read(const std::filesystem::path& path) {
  return {open_regular(path, O_RDONLY), path};
}

File File::create(const std::filesystem::path& path) {
  return {open_regular(path, O_RDWR | O_CREAT | O_TRUNC), path};
}

File File::open_write(const std::filesystem::path& path) {
  return {open_regular(path, O_RDWR), path};
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

std::uint64_t File::size_bytes() const {
  struct stat status {};

  if (::fstat(descriptor_, &status) != 0) {
    fail_errno("stat", path_.string());
  }
  return static_cast<std::uint64_t>(status.st_size);
}

void File::read(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(descriptor_,
                                out.data() + done,
                                std::min(out.size() - done, kMaxTransferBytes),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      fail_errno("read", path_.string());
    }
    if (got == 0) {
      fail_with_hint(ErrorCode::kIo,
                     "the file shrank since it was opened: bring it back as it "
                     "was",
                     "{}: found the end of the file at byte {}, expected {} "
                     "more bytes",
                     path_.string(),
                     offset + done,
                     out.size() - done);
    }
    done += static_cast<std::size_t>(got);
  }
}

void File::write(std::uint64_t offset, std::span<const std::byte> data) const {
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t put =
        ::pwrite(descriptor_,
                 data.data() + done,
                 std::min(data.size() - done, kMaxTransferBytes),
                 static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      fail_errno("write", path_.string());
    }
    done += static_cast<std::size_t>(put);
  }
  if (data.size() >= kLeastWritebackBytes) {
    // Starts writing to the disk now, so that a later sync has little left to
    // wait for. Advice only: sync() reports what goes wrong.
    static_cast<void>(::sync_file_range(descriptor_,
                                        static_cast<off_t>(offset),
                                        static_cast<off_t>(data.size()),
                                        SYNC_FILE_RANGE_WRITE));
  }
}

void File::reserve(std::uint64_t size_bytes) const {
  const auto size = static_cast<off_t>(size_bytes);
  if (size > 0 && ::fallocate(descriptor_, 0, 0, size) != 0 &&
      errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
    fail_errno("reserve disk space", path_.string());
  }
  if (::ftruncate(descriptor_, size) != 0) {
    fail_errno("set length", path_.string());
  }
}

void File::sync() const {
  if (::fsync(descriptor_) != 0) {
    fail_errno("sync", path_.string());
  }
}

void File::drop_cache(std::uint64_t offset, std::uint64_t bytes) const {
  // Advice only: failure changes nothing but the cache.
  static_cast<void>(::posix_fadvise(descriptor_,
                                    static_cast<off_t>(offset),
                                    static_cast<off_t>(bytes),
                                    POSIX_FADV_DONTNEED));
}

MappedFile::MappedFile(const File& file)
    : size_(static_cast<std::size_t>(file.size_bytes())) {
  if (size_ == 0) {
    return;
  }
  void* address =
      ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (address == MAP_FAILED) {
    fail_errno("map", file.path().string());
  }
  data_ = static_cast<const std::byte*>(address);
  range_ =
      std::make_unique<const MappedRange>(address, size_, file.path().string());
}

MappedFile::~MappedFile() {
  range_.reset();
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);  // NOLINT: the C interface
  }
}

std::string read_text_file(const std::filesystem::path& path,
                           std::uint64_t limit_bytes) {
  const File file = File::open_read(path);
  const std::uint64_t size = file.size_bytes();
  NIBBLE_CHECK(size <= limit_bytes,
               kCorruptData,
               "{}: found {} bytes, expected at most {}",
               path.string(),
               size,
               limit_bytes);
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_file_atomically(const std::filesystem::path& path,
                           std::string_view content) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  try {
    const File file = File::create(temporary);
    file.write(0, std::as_bytes(std::span(content)));
    file.sync();
    rename_file(temporary, path);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void rename_file(const std::filesystem::path& from,
                 const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail_errno("rename", from.string());
  }
  sync_directory(to.has_parent_path() ? to.parent_path() : ".");
}

void sync_directory(const std::filesystem::path& path) {
  const int descriptor =
      ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    fail_errno("open directory", path.string());
  }
  const int result = ::fsync(descriptor);
  const int saved = errno;
  ::close(descriptor);
  errno = saved;
  // EINVAL: the file system keeps directories durable by itself.
  if (result != 0 && errno != EINVAL) {
    fail_errno("sync directory", path.string());
  }
}

std::uint64_t free_disk_bytes(const std::filesystem::path& path) {
  std::filesystem::path existing = std::filesystem::absolute(path);
  std::error_code ignored;
  while (!std::filesystem::exists(existing, ignored) &&
         existing.has_relative_path()) {
    existing = existing.parent_path();
  }

  struct statvfs status {};

  if (::statvfs(existing.c_str(), &status) != 0) {
    fail_errno("free space", existing.string());
  }
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

}  // namespace nibble
