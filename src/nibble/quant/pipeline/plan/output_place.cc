#include "nibble/quant/pipeline/plan/output_place.h"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/units.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;

// Whether path is directory or lies in it.
bool lies_in(const fs::path& path, const fs::path& directory) {
  const fs::path relative = path.lexically_relative(directory);
  return !relative.empty() && *relative.begin() != "..";
}

void refuse_non_empty(const fs::path& output, bool overwrite) {
  if (!fs::exists(output)) {
    return;
  }
  NIBBLE_CHECK(fs::is_directory(output),
               kInvalidArgument,
               "output {}: found a file, expected a directory that does not "
               "exist or is empty",
               output.string());
  if (fs::is_empty(output)) {
    return;
  }
  if (!overwrite) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "choose another directory, or replace it with --overwrite",
                   "output {}: found a directory that is not empty, expected "
                   "an empty or a new one",
                   output.string());
  }
  // A slip in a path must not delete somebody's home directory.
  if (!fs::exists(output / kConfigName) && !fs::exists(output / kParamsName)) {
    fail_with_hint(
        ErrorCode::kInvalidArgument,
        "delete it yourself if nothing in it is needed",
        "output {}: found a directory without config.json or params.json, "
        "and "
        "--overwrite replaces only checkpoints",
        output.string());
  }
}

}  // namespace

fs::path partial_path(const fs::path& output) {
  fs::path partial = resolved_output(output);
  partial += ".partial";
  return partial;
}

fs::path resolved_output(const fs::path& output) {
  fs::path resolved = fs::weakly_canonical(fs::absolute(output));
  // "out/" has an empty last part.
  return resolved.has_filename() ? resolved : resolved.parent_path();
}

void check_output_place(const fs::path& output,
                        const fs::path& source,
                        bool overwrite) {
  NIBBLE_CHECK(!output.empty(),
               kInvalidArgument,
               "output: found no path, expected a directory");
  const fs::path place = resolved_output(output);
  const fs::path from = fs::weakly_canonical(fs::absolute(source));
  if (lies_in(place, from) || lies_in(from, place)) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "write to a directory beside the source",
                   "output {}: found a path that overlaps the source {}",
                   place.string(),
                   from.string());
  }
  refuse_non_empty(place, overwrite);

  fs::path parent = place.parent_path();
  while (!fs::exists(parent) && parent.has_relative_path()) {
    parent = parent.parent_path();
  }
  if (::faccessat(AT_FDCWD, parent.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    fail_errno("write into", parent.string());
  }
}

std::uint64_t occupied_bytes(const fs::path& directory) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end;
       !error && it != end;
       it.increment(error)) {
    struct stat status {};

    if (::lstat(it->path().c_str(), &status) == 0) {
      bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
    }
  }
  return bytes;
}

void check_free_disk(const fs::path& output, std::uint64_t needed_bytes) {
  const std::uint64_t free =
      free_disk_bytes(output) + occupied_bytes(partial_path(output));
  if (needed_bytes > free) {
    fail_with_hint(ErrorCode::kIo,
                   "free some space, or choose a directory on another disk",
                   "output {}: found {} of free disk space, expected {}",
                   output.string(),
                   format_size(free),
                   format_size(needed_bytes));
  }
}

}  // namespace nibble::quant
