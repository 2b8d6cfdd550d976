#pragma once

#include <cstddef>

#include "nibble/base/error.h"

namespace nibble::text::jinja {

// A template is a stranger's program: these bounds end it before it can
// exhaust the machine. Published templates stay a hundred times below them.
inline constexpr std::size_t kSourceBytes = 1 << 20;
inline constexpr int kDepth = 200;  // of nested blocks and expressions
inline constexpr std::size_t kTextBytes = 64 << 20;  // of any text
inline constexpr std::size_t kListItems = 1 << 20;
// Evaluated expressions, rounds of loops and KiB of text copied: some seconds.
inline constexpr long kSteps = 5'000'000;

inline void check_bytes(std::size_t bytes) {
  NIBBLE_CHECK(bytes <= kTextBytes,
               kUnsupported,
               "found a text of more than {} bytes",
               kTextBytes);
}

}  // namespace nibble::text::jinja
