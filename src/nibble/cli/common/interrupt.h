#pragma once

#include <atomic>

namespace nibble::cli {

// Makes Ctrl-C (SIGINT, SIGTERM) end the program at once with status 1 and a
// hint; a closed pipe and a limit on file sizes write errors instead of
// signals; and a mapped file that shrank an error line with its name and
// status 1.
void install_signal_handlers();

// While one exists, the first Ctrl-C only sets a flag, so that the work can
// end cleanly; the second still ends the program at once. Not nested.
class InterruptScope {
 public:
  InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  ~InterruptScope();

  // Whether Ctrl-C came since the scope began.
  [[nodiscard]] bool interrupted() const;
  // The same as a flag that long work can watch.
  [[nodiscard]] const std::atomic<bool>& flag() const;
};

// What the program says when it ends at once. Must be a string literal;
// nullptr: nothing at all, in one of several processes of which another one
// speaks.
void set_interrupt_hint(const char* hint);

// The hint of commands that leave a partial result behind.
inline constexpr const char* kGoOnHint =
    "the same command goes on from here; nibble clean removes what is there";

// From here on Ctrl-C does nothing: the program is about to end by itself.
void ignore_interrupts();

}  // namespace nibble::cli
