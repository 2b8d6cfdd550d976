#pragma once

#include "nibble/quant/core/algorithm.h"

namespace nibble::quant {

// Round to nearest: every weight gets the code nearest to it. Needs no
// calibration; rows are encoded apart from each other.
[[nodiscard]] const Algorithm& rtn_algorithm();

}  // namespace nibble::quant
