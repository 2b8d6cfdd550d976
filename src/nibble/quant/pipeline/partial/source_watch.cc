#include "nibble/quant/pipeline/partial/source_watch.h"

#include <cerrno>
#include <sys/stat.h>

#include "nibble/base/error.h"
#include "nibble/base/hash/hash.h"

namespace nibble::quant {
namespace {

constexpr const char* kHint =
    "bring the file back as it was, then run the same command again";

}  // namespace

SourceWatch::SourceWatch(const container::CheckpointReader& reader) {
  for (const std::filesystem::path& file : reader.files()) {
    stamps_.push_back(stamp_of(file));
  }
}

SourceWatch::Stamp SourceWatch::stamp_of(const std::filesystem::path& path) {
  struct stat status {};

  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) {
      fail_errno("look at", path.string());
    }
    fail_with_hint(ErrorCode::kIo,
                   kHint,
                   "{}: found it gone while it was in use",
                   path.string());
  }
  return {path,
          static_cast<std::uint64_t>(status.st_size),
          static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 +
              status.st_mtim.tv_nsec};
}

void SourceWatch::check(std::size_t file) const {
  const Stamp& before = stamps_.at(file);
  const Stamp now = stamp_of(before.path);
  if (now.bytes != before.bytes) {
    fail_with_hint(ErrorCode::kIo,
                   kHint,
                   "{}: found {} bytes, expected the {} that it had when the "
                   "run began",
                   before.path.string(),
                   now.bytes,
                   before.bytes);
  }
  if (now != before) {
    fail_with_hint(ErrorCode::kIo,
                   "start anew once nothing writes to the source",
                   "{}: found it written to while it was being read",
                   before.path.string());
  }
}

void SourceWatch::check_all() const {
  for (std::size_t i = 0; i < stamps_.size(); ++i) {
    check(i);
  }
}

std::string SourceWatch::digest() const {
  Hasher hasher;
  for (const Stamp& stamp : stamps_) {
    hasher.update(fmt::format(
        "{} {} {}\n", stamp.path.filename().string(), stamp.bytes, stamp.time));
  }
  return hasher.digest();
}

}  // namespace nibble::quant
