#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "nibble/quant/core/number_spec.h"

namespace nibble::quant::compressed_tensors {

// The "args" objects of a config group: how its weights or its inputs are
// quantized. `where` is the path of the object in config.json. kCorruptData
// for values that contradict each other, kUnsupported for what is not read
// here (by name), both with the key.
[[nodiscard]] NumberSpec weight_spec(const nlohmann::json& args,
                                     const std::string& where);
[[nodiscard]] NumberSpec input_spec(const nlohmann::json& args,
                                    const std::string& where);

// The reverse, with the keys that every release since 0.9 understands and no
// other: releases from 0.11 on refuse unknown keys, so scale_dtype and
// zp_dtype (0.13) would lock out 0.11 and 0.12.
[[nodiscard]] nlohmann::json weight_args(const NumberSpec& spec);
[[nodiscard]] nlohmann::json input_args(const NumberSpec& spec);

}  // namespace nibble::quant::compressed_tensors
