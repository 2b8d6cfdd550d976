#pragma once

namespace nibble::cli {

// Makes Ctrl-C (SIGINT, SIGTERM) end the program at once with status 1 and a
// hint, and a closed pipe a write error instead of a signal.
void install_signal_handlers();

// While one exists, the first Ctrl-C only sets a flag, so that the work can
// end cleanly; the second still ends the program at once. Not nested.
class InterruptScope {
 public:
  InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  ~InterruptScope();

  // Whether Ctrl-C came since the scope began (or since clear).
  [[nodiscard]] bool interrupted() const;
  void clear();
};

// What the program says when it ends at once. Must be a string literal.
void set_interrupt_hint(const char* hint);

}  // namespace nibble::cli
