#pragma once

// The inner loops of the CPU backend as plain functions, one set for each set
// of instructions. Compiled with special flags, so nothing here may pull in
// inline functions of other headers.

#include <cstdint>

namespace nibble::backend::cpu {

// Bit patterns, so that overloads can tell them from numbers.
struct Bf16 {
  std::uint16_t bits;
};

struct F16 {
  std::uint16_t bits;
};

// y[t][r] = x[t] . w[r] + bias[r] for all tokens t and rows r of the block.
// Strides in elements. W is float, Bf16 or F16. Each y depends on its own x[t]
// and w[r] alone, bit for bit, whatever the block is.
template <typename W>
struct MatmulBlock {
  const float* x = nullptr;  // (tokens, k)
  std::int64_t x_stride = 0;
  const W* w = nullptr;  // (rows, k)
  std::int64_t w_stride = 0;
  const float* bias = nullptr;  // (rows) or nullptr
  float* y = nullptr;           // (tokens, rows)
  std::int64_t y_stride = 0;
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t k = 0;
};

// Running state of a softmax whose scores come block by block.
struct SoftmaxState {
  float maximum = 0;  // of the scores so far; -infinity before the first
  float sum = 0;      // of exp(score - maximum)
};

// acc[m] = acc[m] * factor[m] + sum over n of p[m][n] * v[n].
struct WeightedSum {
  const float* p = nullptr;  // (rows, count)
  std::int64_t p_stride = 0;
  const float* v = nullptr;  // (count, width)
  std::int64_t v_stride = 0;
  const float* factor = nullptr;  // (rows)
  float* acc = nullptr;           // (rows, width), contiguous
  std::int64_t rows = 0;
  std::int64_t count = 0;
  std::int64_t width = 0;
};

struct Kernels {
  void (*matmul_f32)(const MatmulBlock<float>&);
  void (*matmul_bf16)(const MatmulBlock<Bf16>&);
  void (*matmul_f16)(const MatmulBlock<F16>&);
  // Replaces scores[0, count) by exp(score - new maximum), moves the state on
  // and returns what everything summed before must be multiplied with. A score
  // of -infinity counts for nothing.
  float (*softmax_step)(float* scores, std::int64_t count, SoftmaxState&);
  void (*weighted_sum)(const WeightedSum&);
  // weight may be nullptr; y may be x.
  void (*rms_norm)(const float* x,
                   const float* weight,
                   float epsilon,
                   float* y,
                   std::int64_t count);
  // y = x / (1 + exp(-x)) * up; y may be x.
  void (*silu_mul)(const float* x,
                   const float* up,
                   float* y,
                   std::int64_t count);
};

[[nodiscard]] const Kernels& kernels_portable();
// Only where the processor is x86-64.
[[nodiscard]] const Kernels& kernels_avx2();
[[nodiscard]] const Kernels& kernels_avx512();

}  // namespace nibble::backend::cpu
