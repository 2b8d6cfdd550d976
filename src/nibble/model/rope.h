#pragma once

#include <vector>

#include "nibble/model/config.h"

namespace nibble::model {

// Radians by position of each pair of a head, (head_dim / 2), float32:
// theta^(-2i / head_dim), scaled as the config asks. The arithmetic is that of
// the models' training code, so that large positions come out alike.
[[nodiscard]] std::vector<float> rope_frequencies(const ModelConfig& config);

}  // namespace nibble::model
