#include "nibble/model/routing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace nibble::model {

std::vector<Route> route(std::span<const float> logits,
                         std::int64_t experts,
                         std::int64_t per_token) {
  const auto count = static_cast<std::size_t>(experts);
  std::vector<Route> routes(count);
  std::vector<std::size_t> order(count);
  for (std::size_t row = 0; (row + 1) * count <= logits.size(); ++row) {
    const std::span<const float> values = logits.subspan(row * count, count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    // A NaN counts as smallest, so that the comparison stays an order.
    const auto rank = [&](std::size_t e) {
      return std::isnan(values[e]) ? -INFINITY : values[e];
    };
    std::partial_sort(order.begin(),
                      order.begin() + per_token,
                      order.end(),
                      [&](std::size_t a, std::size_t b) {
                        return rank(a) != rank(b) ? rank(a) > rank(b) : a < b;
                      });
    for (std::int64_t i = 0; i < per_token; ++i) {
      const std::size_t expert = order[static_cast<std::size_t>(i)];
      routes[expert].rows.push_back(static_cast<std::int32_t>(row));
      routes[expert].scores.push_back(1.0F /
                                      (1.0F + std::exp(-values[expert])));
    }
  }
  return routes;
}

}  // namespace nibble::model
