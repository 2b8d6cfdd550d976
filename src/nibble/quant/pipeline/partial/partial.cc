#include "nibble/quant/pipeline/partial/partial.h"

#include <algorithm>
#include <system_error>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/quant/pipeline/plan/output_place.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;

// Whether journals were created and the first line never written: the processes
// died at once, so that there is nothing else.
bool just_begun(const fs::path& directory) {
  std::error_code error;
  return fs::file_size(directory / kJournalName, error) == 0 && !error &&
         journals_in(directory).size() ==
             static_cast<std::size_t>(std::distance(
                 fs::directory_iterator(directory), fs::directory_iterator()));
}

bool is_ours(const fs::path& directory) {
  return fs::is_regular_file(fs::symlink_status(directory / kJournalName)) &&
         (Journal::key_in(directory).has_value() || just_begun(directory));
}

}  // namespace

std::optional<Partial> partial_at(const fs::path& path) {
  const fs::path place = path.has_filename() ? path : path.parent_path();
  if (place.extension() != ".partial" ||
      !fs::is_directory(fs::symlink_status(place)) || !is_ours(place)) {
    return std::nullopt;
  }
  Partial partial;
  partial.path = place;
  partial.bytes = occupied_bytes(place);
  if (const auto key = Journal::key_in(place)) {
    partial.source_path = key->source_path;
  }
  partial.in_use = !lock_all(journals_in(place));
  return partial;
}

std::vector<Partial> find_partials(const fs::path& directory) {
  NIBBLE_CHECK(fs::is_directory(directory),
               kNotFound,
               "{}: found no such directory",
               directory.string());
  if (auto own = partial_at(directory)) {
    return {std::move(*own)};
  }
  std::vector<Partial> partials;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (auto partial = partial_at(entry.path())) {
      partials.push_back(std::move(*partial));
    }
  }
  std::sort(partials.begin(), partials.end(), [](const auto& a, const auto& b) {
    return a.path < b.path;
  });
  return partials;
}

bool remove_partial(const fs::path& path) {
  const auto partial = partial_at(path);
  NIBBLE_CHECK(partial.has_value(),
               kInvalidArgument,
               "{}: found no partial result of nibble",
               path.string());
  const auto locks = lock_all(journals_in(partial->path));
  if (!locks) {
    return false;
  }
  remove_journal_last(partial->path);
  return true;
}

void remove_journal_last(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().filename() != kJournalName) {
      fs::remove_all(entry.path());
    }
  }
  fs::remove_all(directory);
}

}  // namespace nibble::quant
