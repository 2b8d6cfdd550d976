#include "nibble/base/parallel.h"

#include <algorithm>
#include <memory>
#include <thread>

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>

namespace nibble {
namespace {

int& requested_threads() {
  static int threads = 0;
  return threads;
}

std::unique_ptr<tbb::global_control>& control() {
  static std::unique_ptr<tbb::global_control> instance;
  return instance;
}

}  // namespace

void set_thread_count(int threads) {
  requested_threads() = threads;
  control().reset();
  control() = std::make_unique<tbb::global_control>(
      tbb::global_control::max_allowed_parallelism,
      static_cast<std::size_t>(thread_count()));
}

int thread_count() {
  if (requested_threads() > 0) {
    return requested_threads();
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void parallel_for(
    std::int64_t count,
    std::int64_t grain,
    FunctionRef<void(std::int64_t begin, std::int64_t end)> body) {
  if (count <= 0) {
    return;
  }
  const std::int64_t chunks = (count + grain - 1) / grain;
  const auto run = [&](std::int64_t chunk) {
    body(chunk * grain, std::min(count, (chunk + 1) * grain));
  };
  if (chunks == 1 || thread_count() == 1) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      run(chunk);
    }
    return;
  }
  tbb::parallel_for(
      tbb::blocked_range<std::int64_t>(0, chunks, 1),
      [&](const tbb::blocked_range<std::int64_t>& range) {
        for (std::int64_t chunk = range.begin(); chunk != range.end();
             ++chunk) {
          run(chunk);
        }
      },
      tbb::simple_partitioner());
}

}  // namespace nibble
