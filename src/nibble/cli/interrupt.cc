#include "nibble/cli/interrupt.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <unistd.h>

#include "nibble/cli/exit_code.h"

namespace nibble::cli {
namespace {

std::atomic<bool> scope_open{false};
std::atomic<bool> interrupt_flag{false};
std::atomic<const char*> hint_text{
    "nothing was changed; run the same command "
    "again"};
static_assert(std::atomic<bool>::is_always_lock_free &&
                  std::atomic<const char*>::is_always_lock_free,
              "a signal handler may touch nothing else");

void put(const char* text) {
  // The program ends next; a failed write has no one to be told to.
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, text, std::strlen(text));
}

void on_signal(int /*signal*/) {
  if (scope_open.load() && !interrupt_flag.exchange(true)) {
    return;
  }
  put("\nnibble: interrupted\nhint: ");
  put(hint_text.load());
  put("\n");
  _exit(kFailed);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};

  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read of the terminal returns, so that chat can notice.
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

InterruptScope::InterruptScope() {
  interrupt_flag.store(false);
  scope_open.store(true);
}

InterruptScope::~InterruptScope() {
  scope_open.store(false);
}

bool InterruptScope::interrupted() const {
  return interrupt_flag.load();
}

const std::atomic<bool>& InterruptScope::flag() const {
  return interrupt_flag;
}

void set_interrupt_hint(const char* hint) {
  hint_text.store(hint);
}

}  // namespace nibble::cli
