#include "nibble/quant/pipeline/partial/share.h"

#include <algorithm>
#include <numeric>

namespace nibble::quant {
namespace {

// Ends of parts that are filled one after the other up to most; more than
// `parts` when that is too little.
std::vector<std::size_t> filled(std::span<const std::uint64_t> weights,
                                std::uint64_t most) {
  std::vector<std::size_t> ends = {0};
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (sum > 0 && weights[i] > most - sum) {
      ends.push_back(i);
      sum = 0;
    }
    sum += weights[i];
  }
  ends.push_back(weights.size());
  return ends;
}

}  // namespace

std::vector<std::size_t> cut_evenly(std::span<const std::uint64_t> weights,
                                    std::size_t parts) {
  std::uint64_t least = 0;
  for (const std::uint64_t weight : weights) {
    least = std::max(least, weight);
  }
  std::uint64_t most =
      std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  while (least < most) {
    const std::uint64_t middle = least + (most - least) / 2;
    if (filled(weights, middle).size() <= parts + 1) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  std::vector<std::size_t> ends = filled(weights, least);
  ends.resize(parts + 1, weights.size());
  return ends;
}

}  // namespace nibble::quant
