#include "nibble/cli/common/interrupt.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <unistd.h>

#include "nibble/base/files/mapping_registry.h"
#include "nibble/cli/screen/exit_code.h"

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
  if (const char* hint = hint_text.load()) {
    put("\nnibble: interrupted\nhint: ");
    put(hint);
    put("\n");
  }
  _exit(kFailed);
}

// A page of a mapped file went away under the program. The state of the thread
// is lost, and whatever the program was writing can be gone on with as after
// a kill, so it ends here.
void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  const char* path = mapped_file_at(info->si_addr);
  if (path == nullptr) {
    // Not ours: as if there were no handler. The signal is delivered again
    // when this returns.
    std::signal(signal, SIG_DFL);
    return;
  }
  put("nibble: ");
  put(path);
  put(": found a part of the file gone while it was in use, expected it as it "
      "was when opened\nhint: bring the file back as it was, then run the same "
      "command again\n");
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
  sigaction(SIGXFSZ, &action, nullptr);

  struct sigaction bus {};

  bus.sa_sigaction = on_bus_error;
  bus.sa_flags = SA_SIGINFO;
  sigemptyset(&bus.sa_mask);
  sigaction(SIGBUS, &bus, nullptr);
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

void ignore_interrupts() {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
}

}  // namespace nibble::cli
