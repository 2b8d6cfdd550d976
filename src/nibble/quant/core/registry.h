#pragma once

#include <memory>
#include <span>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "nibble/quant/core/algorithm.h"
#include "nibble/quant/core/format.h"
#include "nibble/quant/core/scheme.h"

namespace nibble::quant {

// Everything listed in schemes.def, formats.def and algorithms.def. The
// objects live as long as the program.
[[nodiscard]] std::span<const Scheme* const> schemes();
[[nodiscard]] std::span<const Format* const> formats();
[[nodiscard]] std::span<const Algorithm* const> algorithms();

// By recipe name ("int4"); kBadRecipe with the nearest name otherwise.
[[nodiscard]] const Scheme& scheme_named(std::string_view name);
// The scheme that handles a spec.
[[nodiscard]] const Scheme& scheme_for(const NumberSpec& spec);
// "<format>", or "<format>/<variant>".
[[nodiscard]] const Format& format_named(std::string_view name);
[[nodiscard]] const Algorithm& algorithm_named(std::string_view name);

// The first format that knows the checkpoint, opened; nullptr for a dense one.
// kUnsupported when config.json declares a quantization that no format here
// reads.
[[nodiscard]] std::unique_ptr<QuantizedCheckpoint> open_quantized(
    const nlohmann::json& config, const container::CheckpointReader& reader);

}  // namespace nibble::quant
