#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "nibble/backend/backend.h"
#include "nibble/tensor/view.h"

namespace nibble::model {

// All that the model knows of a weight matrix. Implementations are immutable
// after construction; forward is thread-safe.
class Linear {
 public:
  virtual ~Linear() = default;

  // x (tokens, in) -> y (tokens, out), both float32 on the CPU; the bias, if
  // the layer has one, is added.
  virtual void forward(ConstTensorView x,
                       TensorView y,
                       backend::Stream& stream) const = 0;
  // Memory that the layer keeps, in bytes.
  [[nodiscard]] virtual std::size_t resident_bytes() const = 0;
  // What computes it, for people: its stored type, how, and on what.
  [[nodiscard]] virtual std::string description() const = 0;
};

// A place in the model for a Linear, filled by load/ or from outside.
struct LinearSlot {
  std::string path;  // module name in the checkpoint, without ".weight"
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool has_bias = false;
  std::unique_ptr<Linear> layer;
};

// The embedding table's place: rows of hidden values by token id.
class Embedding {
 public:
  virtual ~Embedding() = default;

  // y[t] = row ids[t]; y (tokens, hidden) float32 on the CPU.
  virtual void forward(std::span<const std::int32_t> ids,
                       TensorView y,
                       backend::Stream& stream) const = 0;
  [[nodiscard]] virtual std::size_t resident_bytes() const = 0;
};

struct EmbeddingSlot {
  std::string path;
  std::int64_t rows = 0;  // vocabulary
  std::int64_t hidden = 0;
  std::unique_ptr<Embedding> layer;
};

}  // namespace nibble::model
