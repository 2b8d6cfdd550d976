#pragma once

#include <optional>
#include <string_view>

#include "nibble/quant/core/number_spec.h"

namespace nibble::quant::compressed_tensors {

// The spec that a preset's name stands for when it is the name of a group:
// "W4A16", "FP8_DYNAMIC" ... nothing for another name.
struct Preset {
  std::string_view name;
  std::optional<LayerSpec> spec;  // nothing = unquantized
  bool unsupported = false;       // known, but not read here
};

[[nodiscard]] const Preset* preset_named(std::string_view name);

}  // namespace nibble::quant::compressed_tensors
