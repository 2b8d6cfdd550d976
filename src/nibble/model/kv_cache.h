#pragma once

#include <cstdint>
#include <vector>

#include "nibble/backend/backend.h"
#include "nibble/model/config.h"

namespace nibble::model {

// Keys and values of one sequence: per layer two tensors (capacity, kv_heads,
// head_dim) float32, row = position. Grows by doubling up to the model's
// positions. Not thread-safe.
class KvCache {
 public:
  KvCache(const ModelConfig& config, const backend::Backend& backend);

  // Positions filled so far.
  [[nodiscard]] std::int64_t length() const { return length_; }

  // Makes room for count more positions.
  void reserve(std::int64_t count);

  // Counts the rows that every layer has written.
  void advance(std::int64_t count) { length_ += count; }

  // Forgets all positions from length on.
  void truncate(std::int64_t length) { length_ = length; }

  [[nodiscard]] TensorView keys(std::size_t layer);
  [[nodiscard]] TensorView values(std::size_t layer);

 private:
  struct Layer {
    Tensor keys;
    Tensor values;
  };

  const backend::Backend& backend_;
  std::int64_t kv_heads_;
  std::int64_t head_dim_;
  std::int64_t length_ = 0;
  std::int64_t capacity_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace nibble::model
