#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nibble::model {

// The tokens that one expert serves: rows, ascending, and what each row's
// activations are multiplied with on the way in.
struct Route {
  std::vector<std::int32_t> rows;
  std::vector<float> scores;
};

// Llama 4's routing: each row of logits (tokens, experts) goes to the experts
// of its per_token largest values (the first of equals), with the sigmoid of
// that value as score. One Route for each expert.
[[nodiscard]] std::vector<Route> route(std::span<const float> logits,
                                       std::int64_t experts,
                                       std::int64_t per_token);

}  // namespace nibble::model
