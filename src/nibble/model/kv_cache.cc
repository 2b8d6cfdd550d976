#include "nibble/model/kv_cache.h"

#include <algorithm>

#include "nibble/base/error.h"

namespace nibble::model {
namespace {

constexpr std::int64_t kFirstCapacity = 64;

}  // namespace

KvCache::KvCache(const ModelConfig& config, backend::Backend& backend)
    : backend_(backend),
      kv_heads_(config.kv_heads),
      head_dim_(config.head_dim),
      max_positions_(config.max_positions),
      layers_(config.layers.size()) {}

void KvCache::reserve(std::int64_t count) {
  if (count < 0 || count > max_positions_ - length_) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "shorten the text, or ask for fewer tokens",
                   "context: found {} positions, expected at most the {} that "
                   "the model was made for",
                   length_ + count,
                   max_positions_);
  }
  const std::int64_t needed = length_ + count;
  if (needed <= capacity_) {
    return;
  }
  const std::int64_t capacity = std::min(
      max_positions_, std::max({needed, 2 * capacity_, kFirstCapacity}));
  for (Layer& layer : layers_) {
    layer.keys = grown(layer.keys, capacity);
    layer.values = grown(layer.values, capacity);
  }
  capacity_ = capacity;
}

void KvCache::truncate(std::int64_t length) {
  NIBBLE_CHECK(length >= 0 && length <= length_,
               kInvalidArgument,
               "context: found a length of {}, expected 0 to {}",
               length,
               length_);
  length_ = length;
}

TensorView KvCache::keys(std::size_t layer) {
  return layers_[layer].keys.view();
}

TensorView KvCache::values(std::size_t layer) {
  return layers_[layer].values.view();
}

std::size_t KvCache::resident_bytes() const {
  std::size_t bytes = 0;
  for (const Layer& layer : layers_) {
    bytes += layer.keys.empty() ? 0 : layer.keys.bytes() + layer.values.bytes();
  }
  return bytes;
}

Tensor KvCache::grown(const Tensor& old, std::int64_t capacity) const {
  Tensor tensor =
      backend_.allocate(DType::kF32, {capacity, kv_heads_, head_dim_});
  if (length_ > 0) {
    backend_.copy(old.view().rows(0, length_),
                  tensor.view().rows(0, length_),
                  backend_.stream());
  }
  return tensor;
}

}  // namespace nibble::model
