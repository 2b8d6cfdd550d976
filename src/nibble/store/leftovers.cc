#include "nibble/store/leftovers.h"

#include <algorithm>
#include <optional>

#include "nibble/base/error.h"
#include "nibble/store/lock.h"

namespace nibble::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial";

// ".NAME.removed-PID", as remove_directory names them.
bool is_half_removed(const std::string& name) {
  return name.starts_with('.') && name.find(".removed-") != std::string::npos;
}

// Directories in directory; none when it does not exist. No links.
std::vector<fs::path> folders(const fs::path& directory) {
  std::vector<fs::path> result;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (fs::is_directory(it->symlink_status(gone))) {
      result.push_back(it->path());
    }
  }
  return result;
}

}  // namespace

std::vector<Leftover> find_leftovers(const Store& store) {
  std::vector<Leftover> found;
  const auto add = [&](const fs::path& path,
                       const std::string& lock,
                       const std::string& what) {
    const std::uint64_t bytes = bytes_below(path, /*follow=*/false);
    found.push_back({path, bytes, lock, what, is_locked(store, lock)});
  };
  for (const fs::path& path : folders(store.versions())) {
    if (is_half_removed(path.filename().string())) {
      add(path, "", "removed version");
    }
  }
  for (const fs::path& owner : folders(store.models())) {
    for (const fs::path& path : folders(owner)) {
      const std::string name = path.filename().string();
      if (is_half_removed(name)) {
        add(path, "", "removed model");
      } else if (name.ends_with(kPartial)) {
        const std::string id = owner.filename().string() + "/" +
                               name.substr(0, name.size() - kPartial.size());
        add(path, id, "download of " + id);
      }
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.path < b.path;
  });
  return found;
}

bool remove_leftover(const Store& store, const Leftover& leftover) {
  std::optional<Lock> lock;
  if (!leftover.lock.empty()) {
    lock = Lock::try_take(store, leftover.lock);
    if (!lock) {
      return false;
    }
  }
  std::error_code error;
  fs::remove_all(leftover.path, error);
  NIBBLE_CHECK(!error,
               kIo,
               "remove {}: found {}",
               leftover.path.string(),
               error.message());
  return true;
}

}  // namespace nibble::store
