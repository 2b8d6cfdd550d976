#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "nibble/base/progress.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/pipeline/quantize.h"

namespace nibble::quant {

// Layouts that a checkpoint can be written in.
enum class Layout { kHuggingFace, kMeta, kGptFast };

struct Conversion {
  Layout to = Layout::kHuggingFace;
  // Files of Meta's layout; 0: as many as the source has, or one.
  std::int64_t ranks = 0;
  // Type of dense weights; nothing: that of the source. A quantized source is
  // decoded to it.
  std::optional<DType> dtype = {};
  // What is made of the decoded weights of a quantized source: a recipe, or a
  // scheme of a native layout.
  std::optional<std::string> requantize = {};
};

struct ConvertReport {
  QuantizeReport written;
  // Whether every weight has the value that it had.
  bool exact = true;
};

// Writes a checkpoint in another layout, with the promises of quantize():
// nothing appears before it is complete, and a receipt accounts for it. Dense
// weights and codes are moved as they are wherever the layout can hold them;
// kUnsupported, with the way out as a hint, where it cannot.
[[nodiscard]] ConvertReport convert(load::CheckpointDirectory source,
                                    const Conversion& conversion,
                                    QuantizeOptions options,
                                    ProgressSink& progress,
                                    const std::atomic<bool>& stop);

}  // namespace nibble::quant
