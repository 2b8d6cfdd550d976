#include "nibble/quant/schemes/common/tiled_linear.h"

#include <algorithm>
#include <utility>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/quant/schemes/common/weight_tiles.h"

namespace nibble::quant {
namespace {

// Tokens multiplied at a time: bounds the memory of coded activations.
constexpr std::int64_t kTokenChunk = 512;
constexpr int kPairTiles = 2;

}  // namespace

TiledLinear::TiledLinear(std::int64_t rows,
                         std::int64_t columns,
                         const std::optional<Tensor>& bias,
                         std::string description)
    : rows_(rows),
      columns_(columns),
      bias_(float_bias(bias, rows)),
      description_(std::move(description)) {}

std::int64_t TiledLinear::tiles() const {
  return divide_up(rows_, kTileRows);
}

void TiledLinear::forward(ConstTensorView x,
                          TensorView y,
                          backend::Stream& /*stream*/) const {
  const std::int64_t tokens = x.dim(0);
  NIBBLE_CHECK(x.shape() == Shape({tokens, columns_}) &&
                   y.shape() == Shape({tokens, rows_}),
               kInvalidArgument,
               "linear of {} x {}: found x {} and y {}",
               rows_,
               columns_,
               to_string(x.shape()),
               to_string(y.shape()));
  const auto from = x.as<float>();
  float* to = y.as<float>().data();
  for (std::int64_t first = 0; first < tokens; first += kTokenChunk) {
    const std::int64_t count = std::min(kTokenChunk, tokens - first);
    multiply(from.subspan(static_cast<std::size_t>(first * columns_),
                          static_cast<std::size_t>(count * columns_)),
             count,
             to + first * rows_);
  }
}

void TiledLinear::each_tile(
    std::int64_t tokens,
    float* y,
    FunctionRef<void(std::int64_t tile, std::span<float> out)> kernel) const {
  // Enough chunks to balance the threads, few enough to cost nothing.
  const std::int64_t grain =
      std::max<std::int64_t>(1, tiles() / (4 * thread_count()));
  parallel_for(tiles(), grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> out(static_cast<std::size_t>(tokens * kTileRows));
    for (std::int64_t tile = begin; tile < end; ++tile) {
      kernel(tile, out);
      store(out, kTileRows, tile * kTileRows, tokens, y);
    }
  });
}

void TiledLinear::each_pair(
    std::int64_t tokens,
    float* y,
    FunctionRef<void(std::int64_t first, int count, std::span<float> out)>
        kernel) const {
  parallel_for(tiles(), kPairTiles, [&](std::int64_t begin, std::int64_t end) {
    const auto count = static_cast<int>(end - begin);
    const std::int64_t stride = count * kTileRows;
    std::vector<float> out(static_cast<std::size_t>(tokens * stride));
    kernel(begin, count, out);
    store(out, stride, begin * kTileRows, tokens, y);
  });
}

void TiledLinear::store(std::span<const float> out,
                        std::int64_t stride,
                        std::int64_t first_row,
                        std::int64_t tokens,
                        float* y) const {
  const std::int64_t count = std::min(stride, rows_ - first_row);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* from = out.data() + t * stride;
    float* to = y + t * rows_ + first_row;
    for (std::int64_t r = 0; r < count; ++r) {
      const float bias =
          bias_.empty() ? 0.0F : bias_[static_cast<std::size_t>(first_row + r)];
      to[r] = from[r] + bias;
    }
  }
}

}  // namespace nibble::quant
