#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nibble/backend/backend.h"
#include "nibble/model/config.h"

namespace nibble::model {

// Keys and values of one sequence: per layer two tensors (capacity, kv_heads,
// head_dim) float32, row = position. Grows by doubling up to the model's
// positions. Not thread-safe. The backend must outlive it.
class KvCache {
 public:
  KvCache(const ModelConfig& config, backend::Backend& backend);

  // Positions filled so far.
  [[nodiscard]] std::int64_t length() const { return length_; }

  // Makes room for count more positions; kInvalidArgument beyond the model's
  // positions. Views from before are dead afterwards.
  void reserve(std::int64_t count);

  // Counts the rows that every layer has written.
  void advance(std::int64_t count) { length_ += count; }

  // Forgets all positions from length on, which is at most length().
  void truncate(std::int64_t length);

  [[nodiscard]] TensorView keys(std::size_t layer);
  [[nodiscard]] TensorView values(std::size_t layer);
  [[nodiscard]] std::size_t resident_bytes() const;

 private:
  struct Layer {
    Tensor keys;
    Tensor values;
  };

  // A tensor of that capacity with the filled rows of old.
  [[nodiscard]] Tensor grown(const Tensor& old, std::int64_t capacity) const;

  backend::Backend& backend_;
  std::int64_t kv_heads_;
  std::int64_t head_dim_;
  std::int64_t max_positions_;
  std::int64_t length_ = 0;
  std::int64_t capacity_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace nibble::model
