// Attention in blocks of keys with a running softmax (Dao et al., "Flash-
// Attention", 2022, algorithm 1), so that scores never exist as a whole.

#include <algorithm>
#include <limits>
#include <vector>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/base/parallel.h"

namespace nibble::backend {
namespace {

// Keys in a block. Blocks start at multiples of it, whatever is asked, so that
// a token's sums do not depend on the tokens it is computed with.
constexpr std::int64_t kKeys = 64;
// Rows of queries (tokens times heads that share a key head) in a tile.
constexpr std::int64_t kTileRows = 32;

struct Problem {
  const cpu::Kernels& kernels;
  const float* q;       // (tokens, heads, head_dim)
  const float* keys;    // (positions, kv_heads, head_dim)
  const float* values;  // (positions, kv_heads, head_dim)
  float* y;             // (tokens, heads, head_dim)
  std::span<const std::int32_t> positions;
  std::int64_t chunk;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  float scale;
};

// One tile: tokens [first, first + count) and the heads of one key head.
class Tile {
 public:
  Tile(const Problem& problem,
       std::int64_t kv_head,
       std::int64_t first,
       std::int64_t count)
      : p_(problem),
        group_(problem.heads / problem.kv_heads),
        kv_head_(kv_head),
        first_(first),
        rows_(count * group_),
        q_(size(rows_ * problem.head_dim)),
        acc_(size(rows_ * problem.head_dim), 0.0F),
        scores_(size(rows_ * kKeys)),
        factors_(size(rows_)),
        states_(size(rows_), {-std::numeric_limits<float>::infinity(), 0}) {}

  void run() {
    load_queries();
    std::int64_t begin = std::numeric_limits<std::int64_t>::max();
    std::int64_t end = 0;
    for (std::int64_t row = 0; row < rows_; ++row) {
      begin = std::min(begin, begin_of(position(row)));
      end = std::max(end, position(row) + 1);
    }
    for (std::int64_t key = begin / kKeys * kKeys; key < end; key += kKeys) {
      // Keys before begin may belong to no position of this call, but all
      // positions up to the last have been written.
      step(key, std::min(kKeys, end - key));
    }
    store_results();
  }

 private:
  static std::size_t size(std::int64_t count) {
    return static_cast<std::size_t>(count);
  }

  [[nodiscard]] std::int64_t position(std::int64_t row) const {
    return p_.positions[size(first_ + row / group_)];
  }

  [[nodiscard]] std::int64_t begin_of(std::int64_t position) const {
    return p_.chunk > 0 ? position / p_.chunk * p_.chunk : 0;
  }

  // Offset of a row's head in q and y.
  [[nodiscard]] std::int64_t head_offset(std::int64_t row) const {
    const std::int64_t token = first_ + row / group_;
    const std::int64_t head = kv_head_ * group_ + row % group_;
    return (token * p_.heads + head) * p_.head_dim;
  }

  void load_queries() {
    for (std::int64_t row = 0; row < rows_; ++row) {
      const float* from = p_.q + head_offset(row);
      for (std::int64_t i = 0; i < p_.head_dim; ++i) {
        q_[size(row * p_.head_dim + i)] = from[i] * p_.scale;
      }
    }
  }

  // Keys [key, key + count).
  void step(std::int64_t key, std::int64_t count) {
    const std::int64_t stride = p_.kv_heads * p_.head_dim;
    const std::int64_t offset = key * stride + kv_head_ * p_.head_dim;
    cpu::MatmulBlock<float> dot;
    dot.x = q_.data();
    dot.x_stride = p_.head_dim;
    dot.w = p_.keys + offset;
    dot.w_stride = stride;
    dot.y = scores_.data();
    dot.y_stride = kKeys;
    dot.tokens = rows_;
    dot.rows = count;
    dot.k = p_.head_dim;
    p_.kernels.matmul_f32(dot);
    for (std::int64_t row = 0; row < rows_; ++row) {
      float* scores = scores_.data() + row * kKeys;
      const std::int64_t last = position(row);
      const std::int64_t begin =
          std::clamp<std::int64_t>(begin_of(last) - key, 0, kKeys);
      const std::int64_t end =
          std::clamp<std::int64_t>(last + 1 - key, 0, kKeys);
      constexpr float kUnseen = -std::numeric_limits<float>::infinity();
      // To the block's end, not only to count: the same sums, in the same
      // order, whichever tokens share the tile.
      std::fill(scores, scores + begin, kUnseen);
      std::fill(scores + end, scores + kKeys, kUnseen);
      factors_[size(row)] =
          p_.kernels.softmax_step(scores, kKeys, states_[size(row)]);
    }
    cpu::WeightedSum sum;
    sum.p = scores_.data();
    sum.p_stride = kKeys;
    sum.v = p_.values + offset;
    sum.v_stride = stride;
    sum.factor = factors_.data();
    sum.acc = acc_.data();
    sum.rows = rows_;
    sum.count = count;
    sum.width = p_.head_dim;
    p_.kernels.weighted_sum(sum);
  }

  void store_results() {
    for (std::int64_t row = 0; row < rows_; ++row) {
      float* to = p_.y + head_offset(row);
      const float sum = states_[size(row)].sum;
      for (std::int64_t i = 0; i < p_.head_dim; ++i) {
        to[i] = acc_[size(row * p_.head_dim + i)] / sum;
      }
    }
  }

  const Problem& p_;
  std::int64_t group_;
  std::int64_t kv_head_;
  std::int64_t first_;
  std::int64_t rows_;
  std::vector<float> q_;       // (rows, head_dim), scaled
  std::vector<float> acc_;     // (rows, head_dim)
  std::vector<float> scores_;  // (rows, kKeys)
  std::vector<float> factors_;
  std::vector<cpu::SoftmaxState> states_;
};

}  // namespace

void CpuBackend::attention(ConstTensorView q,
                           ConstTensorView keys,
                           ConstTensorView values,
                           std::span<const std::int32_t> positions,
                           const AttentionMask& mask,
                           float scale,
                           TensorView y,
                           Stream& /*stream*/) const {
  const std::int64_t tokens = q.dim(0);
  const Problem problem{kernels_,
                        q.as<float>().data(),
                        keys.as<float>().data(),
                        values.as<float>().data(),
                        y.as<float>().data(),
                        positions,
                        mask.chunk,
                        q.dim(1),
                        keys.dim(1),
                        q.dim(2),
                        scale};
  NIBBLE_CHECK(y.shape() == q.shape() && values.shape() == keys.shape() &&
                   keys.dim(2) == problem.head_dim &&
                   problem.heads % problem.kv_heads == 0 &&
                   static_cast<std::int64_t>(positions.size()) == tokens,
               kInternal,
               "attention: found q {}, keys {}, values {}, y {}, {} positions",
               to_string(q.shape()),
               to_string(keys.shape()),
               to_string(values.shape()),
               to_string(y.shape()),
               positions.size());
  for (const std::int32_t position : positions) {
    NIBBLE_CHECK(position >= 0 && position < keys.dim(0),
                 kInternal,
                 "attention: found position {}, expected 0 to {}",
                 position,
                 keys.dim(0) - 1);
  }
  const std::int64_t group = problem.heads / problem.kv_heads;
  const std::int64_t tile = std::max<std::int64_t>(1, kTileRows / group);
  const std::int64_t tiles = divide_up(tokens, tile);
  parallel_for(
      tiles * problem.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          // Long tiles first: the last tokens see most keys.
          const std::int64_t first = (tiles - 1 - i / problem.kv_heads) * tile;
          Tile(problem,
               i % problem.kv_heads,
               first,
               std::min(tile, tokens - first))
              .run();
        }
      });
}

}  // namespace nibble::backend
