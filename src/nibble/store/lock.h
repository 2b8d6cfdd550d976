#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string_view>

#include "nibble/base/files/file.h"
#include "nibble/store/store.h"

namespace nibble::store {

// Held while one process changes one name of the store; others wait or turn
// away. The system lets go of it when the process ends, however it ends.
class Lock {
 public:
  // Waits for the lock of name; waiting is called once when another process
  // holds it. kInterrupted once stop is set (a signal wakes the wait), kIo when
  // the store cannot be written.
  static Lock wait(const Store& store,
                   std::string_view name,
                   const std::atomic<bool>& stop,
                   const std::function<void()>& waiting);
  // Nothing when another process holds it.
  static std::optional<Lock> try_take(const Store& store,
                                      std::string_view name);
  // kInvalidArgument when another process holds it.
  static Lock take(const Store& store, std::string_view name);

 private:
  explicit Lock(File file) : file_(std::move(file)) {}

  File file_;
};

// Whether a process holds the lock of name now; writes nothing.
[[nodiscard]] bool is_locked(const Store& store, std::string_view name);

}  // namespace nibble::store
