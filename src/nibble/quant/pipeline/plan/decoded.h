#pragma once

#include <memory>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/core/format.h"

namespace nibble::quant {

// A quantized checkpoint as the dense one that its codes stand for: every
// quantized module appears as its weight in `dtype`, decoded on reading, and
// experts stand in the stacks of their family, whose matrices are decoded one
// at a time (a few stay in memory). The declaration leaves the config. The
// codes remain readable.
struct DecodedCheckpoint {
  load::CheckpointDirectory dense;
  std::shared_ptr<const QuantizedCheckpoint> codes;
};

// kUnsupported for a source that is not quantized or that no format reads.
[[nodiscard]] DecodedCheckpoint decode_checkpoint(
    load::CheckpointDirectory source, DType dtype);

}  // namespace nibble::quant
