#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nibble::quant::compressed_tensors {

// Targets for each of several groups of modules that are quantized apart:
// regular expressions such as
//   re:.*layers\.[0-9]+\.mlp\.(down_proj|gate_proj|up_proj)$
// or, where layers of one kind are in different groups, with the numbers of
// their layers; exact names where even that does not tell them apart. Each
// target fits at least one module of its group and none of another.
[[nodiscard]] std::vector<std::vector<std::string>> target_patterns(
    std::span<const std::vector<std::string_view>> groups);

}  // namespace nibble::quant::compressed_tensors
