#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/core/format.h"

namespace nibble::quant {

// Codes that are moved as they are instead of being chosen. Thread-safe.
class CodeSource {
 public:
  virtual ~CodeSource() = default;

  // The spec that a module of the output gets; nothing: it stays dense.
  // kUnsupported when its codes cannot stand there as they are.
  [[nodiscard]] virtual std::optional<LayerSpec> spec_of(
      std::string_view module) const = 0;
  // Rows [first, first + count) of such a module, of that spec.
  [[nodiscard]] virtual Quantized rows(std::string_view module,
                                       std::int64_t first,
                                       std::int64_t count) const = 0;
};

// The codes of an opened checkpoint under the modules of `target`: those of
// Hugging Face's form, or of the ranks that target.native says.
[[nodiscard]] std::shared_ptr<const CodeSource> move_codes(
    std::shared_ptr<const QuantizedCheckpoint> codes,
    const load::CheckpointDirectory& target);

}  // namespace nibble::quant
