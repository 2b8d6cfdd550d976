#pragma once

#include <memory>

#include <nlohmann/json_fwd.hpp>

#include "nibble/quant/core/format.h"

namespace nibble::quant::meta {

// The packed layers of Meta's int4_mixed or fp8_mixed shards, joined over all
// ranks: INT4 exactly; FP8 down projections keep one scale a rank and row.
[[nodiscard]] std::unique_ptr<QuantizedCheckpoint> open_checkpoint(
    const nlohmann::json& config, const container::CheckpointReader& reader);

}  // namespace nibble::quant::meta
