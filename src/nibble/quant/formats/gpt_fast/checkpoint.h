#pragma once

#include <memory>

#include <nlohmann/json_fwd.hpp>

#include "nibble/quant/core/format.h"

namespace nibble::quant::gpt_fast {

// The packed linears of a gpt-fast file under the names of the Hugging Face
// model. The entry's "int4_layout" tells the order of two-dimensional codes.
[[nodiscard]] std::unique_ptr<QuantizedCheckpoint> open_checkpoint(
    const nlohmann::json& config, const container::CheckpointReader& reader);

}  // namespace nibble::quant::gpt_fast
