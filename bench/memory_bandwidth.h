#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <vector>

#include "nibble/base/parallel.h"
#include "nibble/tensor/tensor.h"

namespace nibble {

// Bytes a second that all threads together read from memory, in 1e9: the
// roof for anything that reads every weight once. The median of `rounds` over
// a block larger than last-level caches. Measured beside each figure, because
// a shared machine's bandwidth changes by the minute.
inline double measured_read_gbps(int rounds = 5) {
  constexpr std::int64_t kBytes = std::int64_t{512} << 20;
  constexpr std::int64_t kChunk = std::int64_t{8} << 20;
  static const Tensor block = [] {
    Tensor made(DType::kU8, {kBytes});
    // Only advice; NOLINTNEXTLINE
    madvise(
        made.view().data(), static_cast<std::size_t>(kBytes), MADV_HUGEPAGE);
    std::memset(made.view().data(), 1, static_cast<std::size_t>(kBytes));
    return made;
  }();
  const auto* words =
      reinterpret_cast<const std::uint64_t*>(block.view().data());
  std::vector<double> found;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    parallel_for(kBytes, kChunk, [&](std::int64_t begin, std::int64_t end) {
      std::uint64_t sums[16] = {};
      for (std::int64_t i = begin / 8; i < end / 8; i += 16) {
        for (int lane = 0; lane < 16; ++lane) {
          sums[lane] += words[i + lane];
        }
      }
      volatile std::uint64_t sink = 0;
      for (const std::uint64_t sum : sums) {
        sink = sink + sum;
      }
    });
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - start;
    found.push_back(static_cast<double>(kBytes) / seconds.count() / 1e9);
  }
  std::ranges::nth_element(found, found.begin() + rounds / 2);
  return found[static_cast<std::size_t>(rounds / 2)];
}

}  // namespace nibble
