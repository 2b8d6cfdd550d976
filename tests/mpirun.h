#pragma once

#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

namespace nibble {

// Why nibble cannot be run in several processes here; "" when it can.
[[nodiscard]] std::string mpirun_missing();

// Arguments for /usr/bin/env by which mpirun runs nibble in so many processes
// of this machine.
[[nodiscard]] std::vector<std::string> mpirun_line(
    int ranks, const std::vector<std::string>& arguments);

// The processes that a running mpirun started, by their ranks.
[[nodiscard]] std::map<int, pid_t> ranks_of(pid_t mpirun);

}  // namespace nibble
