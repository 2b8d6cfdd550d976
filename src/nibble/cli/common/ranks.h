#pragma once

#include "nibble/base/function_ref.h"
#include "nibble/base/ranks/ranks.h"
#include "nibble/cli/screen/session.h"

namespace nibble::cli {

// Runs a command's work in each of the processes that mpirun started, so that
// they end as one: with the same status, and an error that is printed once.
// work gets the processes and gives the status.
int run_in_ranks(const Session& session,
                 const std::atomic<bool>& stop,
                 FunctionRef<int(Ranks&)> work);

}  // namespace nibble::cli
