#include "nibble/cli/common/ranks.h"

#include <algorithm>
#include <string>

#include <fmt/core.h>

#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/cli/common/interrupt.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"

namespace nibble::cli {
namespace {

void tell(const std::string& what, const std::string& hint) {
  print_error("nibble: " + what);
  if (!hint.empty()) {
    print_error("hint: " + hint);
  }
}

// What only this process knows to be over. Prints the cause, unless that is a
// signal which all got, and ends the others.
void end_all(Ranks& ranks, const Error& error) {
  if (error.code() != ErrorCode::kInterrupted) {
    tell(fmt::format("rank {}: {}", ranks.rank(), error.what()), error.hint());
  } else if (ranks.rank() == 0) {
    tell(error.what(), error.hint());
  }
  ranks.abort(exit_code(error.code()));
}

}  // namespace

int run_in_ranks(const Session& session,
                 const std::atomic<bool>& stop,
                 FunctionRef<int(Ranks&)> work) {
  const std::unique_ptr<Ranks> ranks = join_ranks(stop);
  if (ranks->count_here() > 1 && session.threads == 0) {
    set_thread_count(std::max(1, thread_count() / ranks->count_here()));
  }
  if (ranks->rank() > 0) {
    set_interrupt_hint(nullptr);
  }
  try {
    return work(*ranks);
  } catch (const Error& error) {
    if (ranks->count() == 1) {
      throw;
    }
    // The job is over: mpirun sends signals to the processes that still run
    // when the first has ended. So the cause is told here, while all others
    // wait for this one in the end of MPI.
    ignore_interrupts();
    if (!ranks->failed_together()) {
      end_all(*ranks, error);
    }
    if (ranks->rank() == 0) {
      tell(error.what(), error.hint());
    }
    return exit_code(error.code());
  }
}

}  // namespace nibble::cli
