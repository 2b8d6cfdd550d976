#include "nibble/store/remove.h"

#include <algorithm>
#include <unistd.h>

#include <fmt/core.h>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/units.h"
#include "nibble/store/catalogue.h"
#include "nibble/store/lock.h"
#include "nibble/store/make.h"
#include "nibble/store/resolve.h"

namespace nibble::store {
namespace {

namespace fs = std::filesystem;

fs::path place_of(const Store& store, const std::string& name) {
  return is_hub_id(name) ? store.models() / name : store.version(name);
}

[[noreturn]] void unknown(const Store& store, const std::string& name) {
  const std::string near = nearest_word(name, names(store));
  const bool exists = fs::exists(name);
  fail_with_hint(ErrorCode::kNotFound,
                 exists ? "what lies outside the store is yours to delete"
                 : near.empty() ? "nibble list shows the names in the store"
                                : "did you mean " + near + "?",
                 "{}: found no version or model of that name in the store {}",
                 printable(name),
                 store.root.string());
}

// The source that name stands for, as receipts write it.
fs::path source_of(const Store& store, const std::string& name) {
  if (const auto version = find_version(store, name)) {
    return version->source;
  }
  if (is_hub_id(name) && fs::is_directory(store.models() / name)) {
    return store.models() / name;
  }
  if (is_hub_id(name) && !fs::exists(name)) {
    const fs::path snapshot = cached_snapshot(name);
    return snapshot.empty() ? store.models() / name
                            : fs::weakly_canonical(snapshot);
  }
  const fs::path path = fs::weakly_canonical(fs::absolute(name));
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

Removal plan_removal(const Store& store, const std::string& name, bool all) {
  Removal removal;
  const std::vector<std::string> known = names(store);
  const auto add = [&](const std::string& each) {
    removal.names.push_back(each);
    removal.bytes += bytes_below(place_of(store, each), /*follow=*/false);
  };
  if (!all) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      unknown(store, name);
    }
    add(name);
    return removal;
  }
  const fs::path source = source_of(store, name);
  const std::string shown = shown_source(store, source);
  if (std::find(known.begin(), known.end(), shown) != known.end() &&
      is_hub_id(shown)) {
    add(shown);
  }
  for (const Version& version : versions(store)) {
    if (version.source == source ||
        shown_source(store, version.source) == shown) {
      add(version.name);
    }
  }
  if (removal.names.empty()) {
    unknown(store, name);
  }
  return removal;
}

void remove(const Store& store, const Removal& removal) {
  for (const std::string& name : removal.names) {
    // Whoever makes a version holds the lock of its name without a suffix.
    const Lock lock = Lock::take(store, name);
    remove_directory(place_of(store, name));
    if (!is_hub_id(name)) {
      std::error_code ignored;
      fs::remove(store.measurements(name), ignored);
    }
  }
}

void remove_directory(const fs::path& directory) {
  const fs::path aside =
      directory.parent_path() /
      fmt::format(".{}.removed-{}", directory.filename().string(), ::getpid());
  rename_file(directory, aside);
  std::error_code error;
  fs::remove_all(aside, error);
  NIBBLE_CHECK(
      !error, kIo, "remove {}: found {}", aside.string(), error.message());
}

}  // namespace nibble::store
