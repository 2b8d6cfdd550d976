#pragma once

#include <algorithm>
#include <cstdint>

#include "nibble/base/checked_math.h"

namespace nibble::backend::cpu {

// Rows of a weight that one task should take, a multiple of multiple. For few
// tokens the work is bound by memory, so tasks are as small as their start
// allows; for many, a block stays in the second-level cache while all tokens
// pass it. Does not depend on the number of threads. row_bytes counts the
// weight as stored.
[[nodiscard]] inline std::int64_t block_rows(std::int64_t rows,
                                             std::int64_t row_bytes,
                                             std::int64_t tokens,
                                             std::int64_t multiple) {
  constexpr std::int64_t kFewTokens = 8;
  constexpr std::int64_t kDecodeBytes = std::int64_t{64} << 10;
  constexpr std::int64_t kPromptBytes = std::int64_t{256} << 10;
  // Enough blocks to keep many threads busy.
  constexpr std::int64_t kLeastBlocks = 16;
  const std::int64_t bytes = std::max<std::int64_t>(row_bytes, 1);
  const std::int64_t count =
      tokens < kFewTokens
          ? divide_up(kDecodeBytes, bytes)
          : std::min(kPromptBytes / bytes, divide_up(rows, kLeastBlocks));
  return round_up(std::max<std::int64_t>(count, 1), multiple);
}

}  // namespace nibble::backend::cpu
