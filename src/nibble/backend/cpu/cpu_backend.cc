#include "nibble/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "nibble/backend/cpu/row_blocks.h"
#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/tensor/convert.h"

namespace nibble::backend {
namespace {

// Elements of cheap elementwise work that are worth a task.
constexpr std::int64_t kElementsPerTask = std::int64_t{1} << 14;

const cpu::Kernels& kernels_of(Isa isa) {
  NIBBLE_CHECK(cpu_has(isa),
               kUnsupported,
               "processor: found no {}, expected it",
               isa_name(isa));
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) {
    return cpu::kernels_avx512();
  }
  if (isa == Isa::kAvx2) {
    return cpu::kernels_avx2();
  }
#endif
  return cpu::kernels_portable();
}

std::int64_t rows_per_task(std::int64_t row_elements) {
  return std::max<std::int64_t>(
      1, kElementsPerTask / std::max<std::int64_t>(1, row_elements));
}

void check_shape(std::string_view what,
                 ConstTensorView view,
                 const Shape& expected) {
  NIBBLE_CHECK(view.shape() == expected,
               kInternal,
               "{}: found shape {}, expected {}",
               what,
               to_string(view.shape()),
               to_string(expected));
}

template <typename W>
void run_matmul(void (*kernel)(const cpu::MatmulBlock<W>&),
                std::span<const float> x,
                const W* weight,
                const float* bias,
                std::span<float> y,
                std::int64_t tokens,
                std::int64_t rows,
                std::int64_t k) {
  const std::int64_t grain = cpu::block_rows(
      rows, k * static_cast<std::int64_t>(sizeof(W)), tokens, 8);
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    cpu::MatmulBlock<W> block;
    block.x = x.data();
    block.x_stride = k;
    block.w = weight + begin * k;
    block.w_stride = k;
    block.bias = bias == nullptr ? nullptr : bias + begin;
    block.y = y.data() + begin;
    block.y_stride = rows;
    block.tokens = tokens;
    block.rows = end - begin;
    block.k = k;
    kernel(block);
  });
}

}  // namespace

CpuBackend::CpuBackend(Isa isa) : isa_(isa), kernels_(kernels_of(isa)) {}

CpuBackend& cpu_backend() {
  static CpuBackend backend(best_isa());
  return backend;
}

Tensor CpuBackend::allocate(DType dtype, const Shape& shape) const {
  return {dtype, shape};
}

void CpuBackend::embed(ConstTensorView table,
                       std::span<const std::int32_t> ids,
                       TensorView y,
                       Stream& /*stream*/) const {
  const std::int64_t rows = table.dim(0);
  const std::int64_t hidden = table.dim(1);
  check_shape("embed: y", y, {static_cast<std::int64_t>(ids.size()), hidden});
  for (std::size_t t = 0; t < ids.size(); ++t) {
    NIBBLE_CHECK(ids[t] >= 0 && ids[t] < rows,
                 kInvalidArgument,
                 "token id: found {}, expected 0 to {}",
                 ids[t],
                 rows - 1);
    const auto width = static_cast<std::size_t>(hidden);
    convert_to_float(table.rows(ids[t], 1),
                     y.as<float>().subspan(t * width, width));
  }
}

void CpuBackend::matmul(ConstTensorView x,
                        ConstTensorView weight,
                        ConstTensorView bias,
                        TensorView y,
                        Stream& /*stream*/) const {
  const std::int64_t tokens = x.dim(0);
  const std::int64_t rows = weight.dim(0);
  const std::int64_t k = weight.dim(1);
  check_shape("matmul: x", x, {tokens, k});
  check_shape("matmul: y", y, {tokens, rows});
  if (!bias.empty()) {
    check_shape("matmul: bias", bias, {rows});
  }
  const float* added = bias.empty() ? nullptr : bias.as<float>().data();
  const auto run = [&](auto kernel, const auto* elements) {
    run_matmul(
        kernel, x.as<float>(), elements, added, y.as<float>(), tokens, rows, k);
  };
  switch (weight.dtype()) {
    case DType::kF32:
      run(kernels_.matmul_f32, weight.as<float>().data());
      break;
    case DType::kBF16:
      run(kernels_.matmul_bf16,
          reinterpret_cast<const cpu::Bf16*>(weight.data()));
      break;
    case DType::kF16:
      run(kernels_.matmul_f16,
          reinterpret_cast<const cpu::F16*>(weight.data()));
      break;
    default:
      fail(ErrorCode::kUnsupported,
           "matmul: found a weight of {}, expected F32, F16 or BF16",
           dtype_name(weight.dtype()));
  }
}

void CpuBackend::rms_norm(ConstTensorView x,
                          ConstTensorView weight,
                          float epsilon,
                          TensorView y,
                          Stream& /*stream*/) const {
  const std::int64_t width = x.dim(x.shape().rank() - 1);
  const std::int64_t rows = width == 0 ? 0 : x.elements() / width;
  check_shape("rms_norm: y", y, x.shape());
  if (!weight.empty()) {
    check_shape("rms_norm: weight", weight, {width});
  }
  const float* from = x.as<float>().data();
  float* to = y.as<float>().data();
  const float* factors = weight.empty() ? nullptr : weight.as<float>().data();
  parallel_for(
      rows, rows_per_task(width), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          kernels_.rms_norm(
              from + row * width, factors, epsilon, to + row * width, width);
        }
      });
}

void CpuBackend::rope(TensorView x,
                      std::span<const std::int32_t> positions,
                      const Rope& rope,
                      Stream& /*stream*/) const {
  const std::int64_t tokens = x.dim(0);
  const std::int64_t heads = x.dim(1);
  const std::int64_t head_dim = x.dim(2);
  const auto pairs = static_cast<std::int64_t>(rope.inverse_frequencies.size());
  NIBBLE_CHECK(static_cast<std::int64_t>(positions.size()) == tokens &&
                   2 * pairs <= head_dim,
               kInternal,
               "rope: found {} positions and {} frequencies for {}",
               positions.size(),
               pairs,
               to_string(x.shape()));
  const std::int64_t second = rope.interleaved ? 1 : pairs;
  const std::int64_t step = rope.interleaved ? 2 : 1;
  float* data = x.as<float>().data();
  const auto turn = [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> cosines(static_cast<std::size_t>(pairs));
    std::vector<float> sines(static_cast<std::size_t>(pairs));
    for (std::int64_t t = begin; t < end; ++t) {
      const auto position =
          static_cast<float>(positions[static_cast<std::size_t>(t)]);
      for (std::size_t i = 0; i < cosines.size(); ++i) {
        // The product is rounded to float32, as the models were trained.
        const float angle = position * rope.inverse_frequencies[i];
        cosines[i] = std::cos(angle);
        sines[i] = std::sin(angle);
      }
      for (std::int64_t h = 0; h < heads; ++h) {
        float* head = data + (t * heads + h) * head_dim;
        for (std::int64_t i = 0; i < pairs; ++i) {
          const auto at = static_cast<std::size_t>(i);
          float& a = head[i * step];
          float& b = head[i * step + second];
          const float turned = a * cosines[at] - b * sines[at];
          b = a * sines[at] + b * cosines[at];
          a = turned;
        }
      }
    }
  };
  parallel_for(tokens, rows_per_task(heads * head_dim), turn);
}

void CpuBackend::silu_mul(ConstTensorView gate,
                          ConstTensorView up,
                          TensorView y,
                          Stream& /*stream*/) const {
  check_shape("silu_mul: up", up, gate.shape());
  check_shape("silu_mul: y", y, gate.shape());
  const float* gates = gate.as<float>().data();
  const float* ups = up.as<float>().data();
  float* to = y.as<float>().data();
  parallel_for(gate.elements(),
               kElementsPerTask,
               [&](std::int64_t begin, std::int64_t end) {
                 kernels_.silu_mul(
                     gates + begin, ups + begin, to + begin, end - begin);
               });
}

void CpuBackend::add(TensorView x, ConstTensorView y, Stream& /*s*/) const {
  check_shape("add: y", y, x.shape());
  float* to = x.as<float>().data();
  const float* from = y.as<float>().data();
  parallel_for(x.elements(),
               kElementsPerTask,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   to[i] += from[i];
                 }
               });
}

void CpuBackend::copy(ConstTensorView from,
                      TensorView to,
                      Stream& /*stream*/) const {
  check_shape("copy: to", to, from.shape());
  NIBBLE_CHECK(from.dtype() == to.dtype(),
               kInternal,
               "copy: found {} and {}",
               dtype_name(from.dtype()),
               dtype_name(to.dtype()));
  if (from.bytes() != 0) {
    std::memcpy(to.data(), from.data(), from.bytes());
  }
}

void CpuBackend::gather_rows(ConstTensorView x,
                             std::span<const std::int32_t> rows,
                             std::span<const float> factors,
                             TensorView y,
                             Stream& /*stream*/) const {
  const std::int64_t width = x.dim(1);
  check_shape(
      "gather_rows: y", y, {static_cast<std::int64_t>(rows.size()), width});
  NIBBLE_CHECK(factors.size() == rows.size(),
               kInternal,
               "gather_rows: found {} factors for {} rows",
               factors.size(),
               rows.size());
  const float* from = x.as<float>().data();
  float* to = y.as<float>().data();
  for (std::size_t i = 0; i < rows.size(); ++i, to += width) {
    NIBBLE_ASSERT(rows[i] >= 0 && rows[i] < x.dim(0));
    const float* row = from + rows[i] * width;
    const float factor = factors[i];
    std::transform(
        row, row + width, to, [=](float value) { return value * factor; });
  }
}

void CpuBackend::add_to_rows(ConstTensorView x,
                             std::span<const std::int32_t> rows,
                             TensorView y,
                             Stream& /*stream*/) const {
  const std::int64_t width = y.dim(1);
  check_shape(
      "add_to_rows: x", x, {static_cast<std::int64_t>(rows.size()), width});
  const float* from = x.as<float>().data();
  float* to = y.as<float>().data();
  for (std::size_t i = 0; i < rows.size(); ++i, from += width) {
    NIBBLE_ASSERT(rows[i] >= 0 && rows[i] < y.dim(0));
    float* row = to + rows[i] * width;
    std::transform(row, row + width, from, row, std::plus<>());
  }
}

Tensor CpuBackend::to_host(ConstTensorView x, Stream& /*stream*/) const {
  return {x, nullptr};
}

}  // namespace nibble::backend
