#pragma once

#include <memory>

#include <nlohmann/json_fwd.hpp>

#include "nibble/container/checkpoint.h"
#include "nibble/quant/core/format.h"

namespace nibble::quant::compressed_tensors {

// Opens a checkpoint whose config.json has this entry: gives each module its
// spec and checks that it has exactly the tensors that belong to it, with
// their dtypes and shapes. Of tensor data only weight_shape is read. See
// Format::open; reader must outlive the result.
[[nodiscard]] std::unique_ptr<QuantizedCheckpoint> open_checkpoint(
    const nlohmann::json& entry, const container::CheckpointReader& reader);

}  // namespace nibble::quant::compressed_tensors
