#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "nibble/tensor/tensor.h"

namespace nibble::backend {

// An order of operations on a device. On the CPU every operation has finished
// when its call returns; a device backend derives its own.
class Stream {
 public:
  virtual ~Stream() = default;

  virtual void synchronize() {}
};

// Rotary embedding of the first 2 * inverse_frequencies.size() elements of
// each head.
struct Rope {
  std::span<const float> inverse_frequencies;  // (head_dim / 2)
  // true: pairs (2i, 2i+1), as Llama 4 stores q and k; false: pairs
  // (i, i + head_dim / 2).
  bool interleaved = false;
};

// What a query may see. Position p sees keys in (begin(p), p] where begin is 0,
// or p rounded down to a multiple of chunk when chunk > 0.
struct AttentionMask {
  std::int64_t chunk = 0;
};

// Operations a model needs, on one device. Activations are float32 on the CPU.
// Shapes are given as (rows, columns); all tensors are contiguous. The calls
// are const and thread-safe; each runs in the order of its stream.
class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual Stream& stream() = 0;
  // Uninitialized memory on the device.
  [[nodiscard]] virtual Tensor allocate(DType dtype,
                                        const Shape& shape) const = 0;

  // y[t] = table[ids[t]]; table (vocabulary, hidden) F32, F16 or BF16.
  virtual void embed(ConstTensorView table,
                     std::span<const std::int32_t> ids,
                     TensorView y,
                     Stream& stream) const = 0;
  // y = x W^T; x (tokens, in), weight (out, in) F32, F16 or BF16, y
  // (tokens, out); bias (out) may be empty.
  virtual void matmul(ConstTensorView x,
                      ConstTensorView weight,
                      ConstTensorView bias,
                      TensorView y,
                      Stream& stream) const = 0;
  // y = x / sqrt(mean(x^2) + eps) * weight over the last dimension; an empty
  // weight means ones. y may be x.
  virtual void rms_norm(ConstTensorView x,
                        ConstTensorView weight,
                        float epsilon,
                        TensorView y,
                        Stream& stream) const = 0;
  // Rotates x (tokens, heads, head_dim) in place for positions (tokens).
  virtual void rope(TensorView x,
                    std::span<const std::int32_t> positions,
                    const Rope& rope,
                    Stream& stream) const = 0;
  // Causal attention of q (tokens, heads, head_dim) at positions over cached
  // keys and values (>= last position + 1, kv_heads, head_dim), row = position.
  // y (tokens, heads, head_dim). scale multiplies q k^T.
  virtual void attention(ConstTensorView q,
                         ConstTensorView keys,
                         ConstTensorView values,
                         std::span<const std::int32_t> positions,
                         const AttentionMask& mask,
                         float scale,
                         TensorView y,
                         Stream& stream) const = 0;
  // y = silu(gate) * up, elementwise. y may be gate.
  virtual void silu_mul(ConstTensorView gate,
                        ConstTensorView up,
                        TensorView y,
                        Stream& stream) const = 0;
  // x += y, elementwise.
  virtual void add(TensorView x, ConstTensorView y, Stream& stream) const = 0;
  // to = from, the same shape and dtype, both on the device.
  virtual void copy(ConstTensorView from,
                    TensorView to,
                    Stream& stream) const = 0;
  // y[i] = x[rows[i]] * factors[i]; x (any, width), y (rows.size(), width). y
  // may be x when rows[i] = i.
  virtual void gather_rows(ConstTensorView x,
                           std::span<const std::int32_t> rows,
                           std::span<const float> factors,
                           TensorView y,
                           Stream& stream) const = 0;
  // y[rows[i]] += x[i]; rows are distinct.
  virtual void add_to_rows(ConstTensorView x,
                           std::span<const std::int32_t> rows,
                           TensorView y,
                           Stream& stream) const = 0;
  // x in host memory. It may be the same memory, so x must outlive the result.
  [[nodiscard]] virtual Tensor to_host(ConstTensorView x,
                                       Stream& stream) const = 0;
};

}  // namespace nibble::backend
