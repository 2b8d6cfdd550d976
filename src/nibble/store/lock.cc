#include "nibble/store/lock.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <sys/file.h>

#include "nibble/base/error.h"

namespace nibble::store {
namespace {

namespace fs = std::filesystem;

fs::path lock_path(const Store& store, std::string_view name) {
  std::string file(name);
  std::replace(file.begin(), file.end(), '/', '@');
  return store.root / "locks" / file;
}

// Lock files stay: one that is removed while another process opens it would
// be two locks of one name.
File open_lock_file(const Store& store, std::string_view name) {
  const fs::path path = lock_path(store, name);
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) {
    fail_with_hint(ErrorCode::kIo,
                   "set NIBBLE_HOME to a directory that can be written",
                   "store {}: found {}, expected a place to write",
                   store.root.string(),
                   error.message());
  }
  return File::create(path);
}

}  // namespace

Lock Lock::wait(const Store& store,
                std::string_view name,
                const std::atomic<bool>& stop,
                const std::function<void()>& waiting) {
  File file = open_lock_file(store, name);
  if (::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0) {
    return Lock(std::move(file));
  }
  waiting();
  while (::flock(file.descriptor(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      fail_errno("lock", file.path().string());
    }
    NIBBLE_CHECK(!stop.load(), kInterrupted, "interrupted");
  }
  return Lock(std::move(file));
}

std::optional<Lock> Lock::try_take(const Store& store, std::string_view name) {
  File file = open_lock_file(store, name);
  if (::flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    return std::nullopt;
  }
  return Lock(std::move(file));
}

Lock Lock::take(const Store& store, std::string_view name) {
  std::optional<Lock> lock = try_take(store, name);
  if (!lock) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "wait for it, or stop it",
                   "{}: found another process at work on it",
                   name);
  }
  return *std::move(lock);
}

bool is_locked(const Store& store, std::string_view name) {
  const fs::path path = lock_path(store, name);
  if (name.empty() || !fs::is_regular_file(path)) {
    return false;
  }
  const File file = File::open_read(path);
  return ::flock(file.descriptor(), LOCK_SH | LOCK_NB) != 0;
}

}  // namespace nibble::store
