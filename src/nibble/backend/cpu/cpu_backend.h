#pragma once

#include "nibble/backend/backend.h"
#include "nibble/backend/cpu/kernels.h"
#include "nibble/base/cpu.h"

namespace nibble::backend {

// All operations on the processor, in float32, by parallel_for. What comes out
// for one token does not depend, bit for bit, on the other tokens of the call
// nor on the number of threads; it differs in rounding between sets of
// instructions.
class CpuBackend final : public Backend {
 public:
  // kUnsupported when the processor lacks isa.
  explicit CpuBackend(Isa isa);

  [[nodiscard]] std::string_view name() const override { return "cpu"; }

  [[nodiscard]] Isa isa() const { return isa_; }

  [[nodiscard]] Stream& stream() override { return stream_; }

  [[nodiscard]] Tensor allocate(DType dtype, const Shape& shape) const override;

  void embed(ConstTensorView table,
             std::span<const std::int32_t> ids,
             TensorView y,
             Stream& stream) const override;
  void matmul(ConstTensorView x,
              ConstTensorView weight,
              ConstTensorView bias,
              TensorView y,
              Stream& stream) const override;
  void rms_norm(ConstTensorView x,
                ConstTensorView weight,
                float epsilon,
                TensorView y,
                Stream& stream) const override;
  void rope(TensorView x,
            std::span<const std::int32_t> positions,
            const Rope& rope,
            Stream& stream) const override;
  void attention(ConstTensorView q,
                 ConstTensorView keys,
                 ConstTensorView values,
                 std::span<const std::int32_t> positions,
                 const AttentionMask& mask,
                 float scale,
                 TensorView y,
                 Stream& stream) const override;
  void silu_mul(ConstTensorView gate,
                ConstTensorView up,
                TensorView y,
                Stream& stream) const override;
  void add(TensorView x, ConstTensorView y, Stream& stream) const override;
  void copy(ConstTensorView from, TensorView to, Stream& stream) const override;
  void gather_rows(ConstTensorView x,
                   std::span<const std::int32_t> rows,
                   std::span<const float> factors,
                   TensorView y,
                   Stream& stream) const override;
  void add_to_rows(ConstTensorView x,
                   std::span<const std::int32_t> rows,
                   TensorView y,
                   Stream& stream) const override;
  [[nodiscard]] Tensor to_host(ConstTensorView x,
                               Stream& stream) const override;

 private:
  Isa isa_;
  const cpu::Kernels& kernels_;
  Stream stream_;
};

// The backend of best_isa(), made at the first call. Thread-safe.
[[nodiscard]] CpuBackend& cpu_backend();

}  // namespace nibble::backend
