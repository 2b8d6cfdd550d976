// Ranks in a program that was built without MPI.
#include "nibble/base/error.h"
#include "nibble/base/ranks/ranks.h"
#include "nibble/base/ranks/started_together.h"

namespace nibble {

std::unique_ptr<Ranks> join_ranks(const std::atomic<bool>& /*stop*/) {
  const int started = started_together();
  if (started > 1) {
    // Each of them alone would do the whole work at the same place.
    fail_with_hint(ErrorCode::kUnsupported,
                   "install libopenmpi-dev and build anew, or run it without "
                   "mpirun",
                   "mpirun: found {} processes, expected one: this nibble was "
                   "built without MPI",
                   started);
  }
  return single_rank();
}

}  // namespace nibble
