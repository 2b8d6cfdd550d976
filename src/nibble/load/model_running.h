#pragma once

// What tests of whole models do with them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "nibble/model/transformer.h"

namespace nibble::load {

// Logits (tokens, vocabulary) of a text on its own.
inline Tensor logits_of(const model::Transformer& model,
                        std::span<const std::int32_t> ids) {
  model::KvCache cache = model.make_cache();
  return model.forward(ids, cache, model::Transformer::Logits::kAll);
}

// NaN when either has one.
inline float largest_difference(ConstTensorView a, ConstTensorView b) {
  const auto left = a.as<float>();
  const auto right = b.as<float>();
  float most = left.size() == right.size() ? 0 : NAN;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    const float difference = std::fabs(left[i] - right[i]);
    most = difference <= most ? most : difference;
  }
  return most;
}

// Mean over all but the first token of -ln p(token | those before).
inline double mean_nll(ConstTensorView logits,
                       std::span<const std::int32_t> ids) {
  double sum = 0;
  for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
    const auto row = logits.rows(static_cast<std::int64_t>(t), 1).as<float>();
    const double most = *std::max_element(row.begin(), row.end());
    double total = 0;
    for (const float value : row) {
      total += std::exp(value - most);
    }
    sum += most + std::log(total) - row[static_cast<std::size_t>(ids[t + 1])];
  }
  return sum / static_cast<double>(ids.size() - 1);
}

// The most likely continuation, token by token, with the cache.
inline std::vector<std::int32_t> greedy(const model::Transformer& model,
                                        std::vector<std::int32_t> ids,
                                        std::size_t count) {
  model::KvCache cache = model.make_cache();
  std::vector<std::int32_t> found;
  while (found.size() < count) {
    const Tensor logits =
        model.forward(ids, cache, model::Transformer::Logits::kLast);
    const auto row = logits.view().as<float>();
    ids = {static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) -
                                     row.begin())};
    found.push_back(ids.front());
  }
  return found;
}

}  // namespace nibble::load
