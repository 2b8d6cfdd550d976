#pragma once

#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/engines/assess.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {

// What engines would be given: the plan's linears, and the heads, vocabulary
// and experts of config.json as far as it names them. Views point into plan.
[[nodiscard]] ModelFacts model_facts(const Plan& plan,
                                     const load::CheckpointDirectory& source);

}  // namespace nibble::quant
