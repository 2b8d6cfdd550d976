#include "nibble/quant/pipeline/partial/share.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace nibble::quant {
namespace {

using Weights = std::vector<std::uint64_t>;
using Ends = std::vector<std::size_t>;

std::uint64_t heaviest(const Weights& weights, const Ends& ends) {
  std::uint64_t most = 0;
  for (std::size_t p = 0; p + 1 < ends.size(); ++p) {
    EXPECT_LE(ends[p], ends[p + 1]);
    std::uint64_t sum = 0;
    for (std::size_t i = ends[p]; i < ends[p + 1]; ++i) {
      sum += weights[i];
    }
    most = std::max(most, sum);
  }
  return most;
}

TEST(CutEvenly, CoversAllItemsOnceInOrder) {
  EXPECT_EQ(cut_evenly(Weights{5, 5, 5, 5}, 2), (Ends{0, 2, 4}));
  EXPECT_EQ(cut_evenly(Weights{9, 1, 1, 1, 9}, 3), (Ends{0, 1, 4, 5}));
  EXPECT_EQ(cut_evenly(Weights{7}, 1), (Ends{0, 1}));
}

TEST(CutEvenly, LeavesPartsEmptyWhenThereIsLessToDo) {
  EXPECT_EQ(cut_evenly(Weights{}, 3), (Ends{0, 0, 0, 0}));
  EXPECT_EQ(cut_evenly(Weights{4, 4}, 4), (Ends{0, 1, 2, 2, 2}));
  // Items of no weight cost nothing, wherever they are.
  EXPECT_EQ(cut_evenly(Weights{0, 0, 0}, 2).back(), 3u);
}

// Against every way to cut.
TEST(CutEvenly, FindsTheLightestHeaviestPart) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    Weights weights(1 + random() % 8);
    for (std::uint64_t& weight : weights) {
      weight = random() % 20;
    }
    std::uint64_t best =
        std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
    for (std::size_t a = 0; a <= weights.size(); ++a) {
      for (std::size_t b = a; b <= weights.size(); ++b) {
        best = std::min(best, heaviest(weights, {0, a, b, weights.size()}));
      }
    }
    const Ends ends = cut_evenly(weights, 3);
    EXPECT_EQ(ends.front(), 0u);
    EXPECT_EQ(ends.back(), weights.size());
    EXPECT_EQ(ends.size(), 4u);
    EXPECT_EQ(heaviest(weights, ends), best);
  }
}

}  // namespace
}  // namespace nibble::quant
