#pragma once

namespace nibble {

// How many processes a launcher of MPI says, in the environment, that it
// started together with this one; 0 when no launcher started it, or one that
// does not tell.
[[nodiscard]] int started_together();
// Whether a launcher of MPI started this process.
[[nodiscard]] bool started_by_launcher();

}  // namespace nibble
