#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/container/checkpoint.h"

namespace nibble::quant {

// Whether a receipt accounts for tensors as it promises, one line for each that
// it does not: every entry has a fate that exists, a dropped one its reason,
// every other one its outputs.
[[nodiscard]] std::vector<std::string> receipt_problems(
    const nlohmann::json& receipt);

// The same for a source: each of its tensors has one entry with its type and
// shape, and no entry is about a tensor that it does not have.
[[nodiscard]] std::vector<std::string> source_problems(
    const nlohmann::json& receipt,
    std::span<const container::TensorInfo> source);

}  // namespace nibble::quant
