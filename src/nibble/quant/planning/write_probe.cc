#include "nibble/quant/planning/write_probe.h"

#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <system_error>
#include <unistd.h>

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A descriptor of a file that no name leads to, so that nothing is left of it
// whatever happens; -1 when the directory takes none.
int open_nameless(const fs::path& directory) {
  const int descriptor =
      ::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor >= 0) {
    return descriptor;
  }
  // Not every file system knows O_TMPFILE.
  std::string name = (directory / ".nibble-probe-XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) {
    ::unlink(name.c_str());
  }
  return named;
}

}  // namespace

fs::path existing_directory(const fs::path& directory) {
  fs::path path = fs::absolute(directory).lexically_normal();
  std::error_code error;
  while (!fs::is_directory(path, error) && path.has_relative_path()) {
    path = path.parent_path();
  }
  // "a/b/" and "a/b/." are a/b.
  return path.has_filename() || !path.has_relative_path() ? path
                                                          : path.parent_path();
}

WriteProbe probe_write(const fs::path& directory,
                       std::span<const std::byte> data,
                       std::uint64_t most_bytes,
                       double most_seconds) {
  WriteProbe probe;
  probe.directory = directory;
  const int descriptor = open_nameless(directory);
  if (descriptor < 0 || data.empty()) {
    return probe;
  }
  const auto start = Clock::now();
  while (probe.bytes < most_bytes && seconds_since(start) < most_seconds) {
    const ssize_t written = ::pwrite(
        descriptor, data.data(), data.size(), static_cast<off_t>(probe.bytes));
    if (written <= 0) {
      break;  // a full disk is the plan's business
    }
    probe.bytes += static_cast<std::uint64_t>(written);
  }
  ::fdatasync(descriptor);
  probe.seconds = seconds_since(start);
  ::close(descriptor);
  return probe;
}

}  // namespace nibble::quant
