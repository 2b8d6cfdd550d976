#include "nibble/quant/pipeline/check/publish.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <string>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/hash/hash.h"
#include "nibble/quant/pipeline/partial/journal.h"
#include "nibble/quant/pipeline/plan/output_place.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kChunkBytes = 1 << 20;

void call(const StepHook& hook, std::string_view step) {
  if (hook) {
    hook(step);
  }
}

// Digest of a file; with to, its bytes are written there as well.
CopiedFile digest_file(const File& from, const File* to) {
  CopiedFile result;
  result.bytes = from.size_bytes();
  Hasher hasher;
  std::vector<std::byte> chunk(
      static_cast<std::size_t>(std::min(result.bytes, kChunkBytes)));
  for (std::uint64_t at = 0; at < result.bytes; at += chunk.size()) {
    const auto bytes = std::span(chunk).first(static_cast<std::size_t>(
        std::min<std::uint64_t>(chunk.size(), result.bytes - at)));
    from.read(at, bytes);
    hasher.update(bytes);
    if (to != nullptr) {
      to->write(at, bytes);
    }
  }
  result.checksum = hasher.digest();
  return result;
}

CopiedFile copy_one(const fs::path& from, const fs::path& to) {
  NIBBLE_CHECK(fs::exists(from),
               kIo,
               "{}: found it gone while it was in use",
               from.string());
  fs::create_directories(to.parent_path());
  CopiedFile copied;
  {
    const File target = File::create(to);
    copied = digest_file(File::open_read(from), &target);
    target.sync();
  }
  const CopiedFile again = digest_of_file(to);
  NIBBLE_CHECK(again.checksum == copied.checksum && again.bytes == copied.bytes,
               kIo,
               "{}: found other bytes on disk than were written",
               to.string());
  return copied;
}

// Puts partial in the place of the directory output; the old one ends at
// partial.
void exchange(const fs::path& partial, const fs::path& output) {
  if (::renameat2(AT_FDCWD,
                  partial.c_str(),
                  AT_FDCWD,
                  output.c_str(),
                  RENAME_EXCHANGE) == 0) {
    return;
  }
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    fail_errno("exchange with the finished result", output.string());
  }
  // The file system cannot: two steps, between which only the old copy's name
  // is missing.
  fs::path aside = output;
  aside += ".replaced";
  fs::rename(output, aside);
  fs::rename(partial, output);
  fs::rename(aside, partial);
}

// The name was free, or a checkpoint's, when the run began. Exchanging would
// remove whatever came there since.
void refuse_taken(const fs::path& output, bool overwrite) {
  if (!fs::exists(output) ||
      (fs::is_directory(output) &&
       (fs::is_empty(output) ||
        (overwrite && fs::exists(output / kConfigName))))) {
    return;
  }
  fail_with_hint(ErrorCode::kIo,
                 "move away what is there",
                 "output {}: found it taken while the result was made",
                 output.string());
}

}  // namespace

std::vector<CopiedFile> copy_side_files(const load::CheckpointDirectory& source,
                                        const fs::path& directory,
                                        const StepHook& before_step) {
  std::vector<CopiedFile> copied;
  for (const fs::path& name : source.side_files) {
    call(before_step, "side file");
    copied.push_back(copy_one(source.path / name, directory / name));
    copied.back().name = name.generic_string();
  }
  return copied;
}

CopiedFile digest_of_file(const fs::path& path) {
  return digest_file(File::open_read(path), nullptr);
}

void sync_tree(const fs::path& directory) {
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_directory()) {
      sync_directory(entry.path());
    }
  }
  sync_directory(directory);
}

void put_in_place(const fs::path& complete,
                  const fs::path& output,
                  const StepHook& before_step) {
  if (fs::exists(output) && !fs::is_empty(output)) {
    exchange(complete, output);
    sync_directory(output.parent_path());
    call(before_step, "remove old");
    fs::remove_all(complete);
  } else {
    rename_file(complete, output);
  }
}

void publish(const fs::path& partial,
             const fs::path& output,
             bool overwrite,
             const StepHook& before_step) {
  sync_tree(partial);
  call(before_step, "rename");
  refuse_taken(output, overwrite);
  put_in_place(partial, output, before_step);
  call(before_step, "remove journal");
  fs::remove(output / kJournalName);
  sync_directory(output);
  sync_directory(output.parent_path());
}

}  // namespace nibble::quant
