#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nibble::quant {

// Cuts items of these weights into `parts` runs of consecutive items whose
// heaviest is as light as it can be: part p is [result[p], result[p + 1]), and
// may be empty. Consecutive items lie side by side in files, so processes of
// different machines read and write different pages.
[[nodiscard]] std::vector<std::size_t> cut_evenly(
    std::span<const std::uint64_t> weights, std::size_t parts);

}  // namespace nibble::quant
