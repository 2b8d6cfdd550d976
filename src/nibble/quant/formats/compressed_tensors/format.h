#pragma once

#include "nibble/quant/core/format.h"

namespace nibble::quant {

// The checkpoint format of vLLM and llm-compressor: one directory of
// safetensors files whose config.json declares what is quantized. Reads and
// writes pack-quantized and int-quantized (4 and 8 bits), float-quantized and
// naive-quantized (FP8 E4M3); see docs/formats/compressed-tensors.md.
[[nodiscard]] const Format& compressed_tensors_format();

}  // namespace nibble::quant
