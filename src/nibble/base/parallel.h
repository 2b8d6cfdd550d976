#pragma once

#include <cstddef>
#include <cstdint>

#include "nibble/base/function_ref.h"

namespace nibble {

// Limits the threads of the process; 0 means all cores. Call it once, before
// the first parallel_for.
void set_thread_count(int threads);

// Threads that parallel_for uses.
[[nodiscard]] int thread_count();

// Calls body(begin, end) for chunks that cover [0, count), each of at most
// grain items and starting at a multiple of grain, from several threads. The
// chunks do not depend on the number of threads, so results that depend only
// on the chunk are the same on every machine. The first exception cancels
// chunks not yet begun and is rethrown here.
void parallel_for(std::int64_t count,
                  std::int64_t grain,
                  FunctionRef<void(std::int64_t begin, std::int64_t end)> body);

}  // namespace nibble
