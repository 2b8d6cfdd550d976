#pragma once

#include <string>
#include <vector>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/pipeline/plan/plan.h"
#include "nibble/quant/planning/forecast.h"

namespace nibble::cli {

// "0-47", "1-47 step 2", "0, 3, 5-7" of ascending numbers.
[[nodiscard]] std::string fold_numbers(const std::vector<int>& numbers);

// What --dry-run prints: tensors of equal fate folded over layers, or all of
// them one by one, then sizes, disk, memory, time, degrees of parallelism and
// what engines say.
[[nodiscard]] std::string plan_text(const quant::Plan& plan,
                                    const load::CheckpointDirectory& source,
                                    const quant::Forecast& forecast,
                                    bool every_tensor);

}  // namespace nibble::cli
