#pragma once

#include <memory>
#include <string_view>

#include "nibble/model/linear.h"
#include "nibble/quant/core/format.h"

namespace nibble::quant {

// The embedding table of a quantized module, kept as its codes (4-bit codes two
// a byte) and scales; rows are decoded to float32 when they are looked up. The
// checkpoint is not needed afterwards. kCorruptData unless the module is a
// (rows, hidden) matrix of the slot.
[[nodiscard]] std::unique_ptr<model::Embedding> make_quantized_embedding(
    const QuantizedCheckpoint& checkpoint, const model::EmbeddingSlot& slot);

}  // namespace nibble::quant
