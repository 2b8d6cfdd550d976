#pragma once

// The kernels, written once for every vector width. Each kernels_ISA.cc
// includes this file after it has defined, in an anonymous namespace, a struct
// V with the vector type V::F of V::kLanes floats, its operations, and the
// register tile V::kTokens x 4. Everything here is in an anonymous namespace
// as well: code compiled for one instruction set must not be linked into
// another's.

#include <cstdint>

#include "nibble/backend/cpu/kernels.h"

namespace nibble::backend::cpu {
namespace {

using F = V::F;

template <typename T>
F load_tail(const T* from, std::int64_t count) {
  T buffer[V::kLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    buffer[i] = from[i];
  }
  return V::load(buffer);
}

void store_tail(float* to, F value, std::int64_t count) {
  float buffer[V::kLanes];
  V::store(buffer, value);
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = buffer[i];
  }
}

// exp(x) within about one unit in the last place; 0 below -86, x above 88
// counts as 88. x = n ln 2 + r with |r| <= ln 2 / 2; the series of exp(r) is
// cut after r^7 / 7!, an error of 6e-9; 2^n is added to the exponent bits.
F exp_of(F x) {
  const F low = V::set(-86.0F);
  // Argument order matters: a NaN in the second one passes through.
  const F bounded = V::min(V::set(88.0F), V::max(low, x));
  // Adding 1.5 * 2^23 leaves the rounded integer in the low mantissa bits.
  const F magic = V::set(12582912.0F);
  const F shifted = V::fma(bounded, V::set(1.44269504F), magic);
  const F n = V::sub(shifted, magic);
  // ln 2 in two parts, the first exact in the product with n.
  F r = V::fma(n, V::set(-0.693359375F), bounded);
  r = V::fma(n, V::set(2.12194440e-4F), r);
  F sum = V::set(1.0F / 5040);
  sum = V::fma(sum, r, V::set(1.0F / 720));
  sum = V::fma(sum, r, V::set(1.0F / 120));
  sum = V::fma(sum, r, V::set(1.0F / 24));
  sum = V::fma(sum, r, V::set(1.0F / 6));
  sum = V::fma(sum, r, V::set(0.5F));
  sum = V::fma(sum, r, V::set(1.0F));
  sum = V::fma(sum, r, V::set(1.0F));
  return V::zero_where_less(x, low, V::scale_exponent(sum, shifted));
}

// ---- y = x W^T --------------------------------------------------------------

// One register tile: kRows accumulators for each token, summed over k lane by
// lane and then across lanes in a fixed order.
template <typename W, int kTokens, int kRows>
void matmul_tile(const MatmulBlock<W>& block,
                 std::int64_t token,
                 std::int64_t row) {
  F acc[kTokens][kRows];
  for (auto& of_token : acc) {
    for (F& value : of_token) {
      value = V::set(0);
    }
  }
  const float* x = block.x + token * block.x_stride;  // (kTokens, k)
  const W* w = block.w + row * block.w_stride;        // (kRows, k)
  const auto step = [&](auto load, std::int64_t k) {
    F xs[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      xs[t] = load(x + t * block.x_stride + k);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F ws = load(w + r * block.w_stride + k);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        acc[t][r] = V::fma(xs[t], ws, acc[t][r]);
      }
    }
  };
  std::int64_t k = 0;
  for (; k + V::kLanes <= block.k; k += V::kLanes) {
    step([](const auto* from) { return V::load(from); }, k);
  }
  if (k < block.k) {
    const std::int64_t rest = block.k - k;
    step([rest](const auto* from) { return load_tail(from, rest); }, k);
  }
  for (int t = 0; t < kTokens; ++t) {
    float* y = block.y + (token + t) * block.y_stride + row;
    for (int r = 0; r < kRows; r += 4) {
      float sums[4];
      const F none = V::set(0);
      V::sum4(acc[t][r],
              r + 1 < kRows ? acc[t][(r + 1) % kRows] : none,
              r + 2 < kRows ? acc[t][(r + 2) % kRows] : none,
              r + 3 < kRows ? acc[t][(r + 3) % kRows] : none,
              sums);
      for (int i = 0; i < 4 && r + i < kRows; ++i) {
        y[r + i] =
            block.bias == nullptr ? sums[i] : sums[i] + block.bias[row + r + i];
      }
    }
  }
}

template <typename W, int kTokens>
void matmul_rows(const MatmulBlock<W>& block, std::int64_t token) {
  // One token alone is bound by memory: more rows keep more loads in flight.
  constexpr int kWide = kTokens == 1 ? 8 : 4;
  std::int64_t row = 0;
  for (; row + kWide <= block.rows; row += kWide) {
    matmul_tile<W, kTokens, kWide>(block, token, row);
  }
  for (; row < block.rows; ++row) {
    matmul_tile<W, kTokens, 1>(block, token, row);
  }
}

// Tokens in tiles of kTokens, what remains in ever smaller ones.
template <typename W, int kTokens>
void matmul_tokens(const MatmulBlock<W>& block, std::int64_t token) {
  for (; token + kTokens <= block.tokens; token += kTokens) {
    matmul_rows<W, kTokens>(block, token);
  }
  if constexpr (kTokens > 1) {
    matmul_tokens<W, kTokens - 1>(block, token);
  }
}

template <typename W>
void matmul(const MatmulBlock<W>& block) {
  matmul_tokens<W, V::kTokens>(block, 0);
}

// ---- Attention --------------------------------------------------------------

float softmax_step(float* scores, std::int64_t count, SoftmaxState& state) {
  constexpr float kNone = -__builtin_inff();
  F most = V::set(kNone);
  std::int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    most = V::max(most, V::load(scores + i));
  }
  float lanes[V::kLanes];
  V::store(lanes, most);
  float maximum = state.maximum;
  for (const float lane : lanes) {
    maximum = lane > maximum ? lane : maximum;
  }
  for (; i < count; ++i) {
    maximum = scores[i] > maximum ? scores[i] : maximum;
  }
  if (maximum == kNone) {  // nothing visible yet
    for (i = 0; i < count; ++i) {
      scores[i] = 0;
    }
    return 1;
  }
  float factor[V::kLanes];
  V::store(factor, exp_of(V::set(state.maximum - maximum)));
  F sum = V::set(0);
  for (i = 0; i + V::kLanes <= count; i += V::kLanes) {
    const F p = exp_of(V::sub(V::load(scores + i), V::set(maximum)));
    V::store(scores + i, p);
    sum = V::add(sum, p);
  }
  if (i < count) {
    // Lanes past the end hold exp(0 - maximum): they are not to be summed.
    const std::int64_t rest = count - i;
    const F p = exp_of(V::sub(load_tail(scores + i, rest), V::set(maximum)));
    store_tail(scores + i, p, rest);
    sum = V::add(sum, load_tail(scores + i, rest));
  }
  float sums[4];
  const F none = V::set(0);
  V::sum4(sum, none, none, none, sums);
  state.sum = state.sum * factor[0] + sums[0];
  state.maximum = maximum;
  return factor[0];
}

// kRows rows of acc, kVectors vectors wide, from column on.
template <int kRows, int kVectors>
void weighted_sum_tile(const WeightedSum& job,
                       std::int64_t row,
                       std::int64_t column) {
  float* out = job.acc + row * job.width + column;
  F acc[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kVectors; ++c) {
      acc[r][c] = V::mul(V::load(out + r * job.width + c * V::kLanes),
                         V::set(job.factor[row + r]));
    }
  }
  for (std::int64_t n = 0; n < job.count; ++n) {
    const float* v = job.v + n * job.v_stride + column;
    F vs[kVectors];
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      vs[c] = V::load(v + c * V::kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F p = V::set(job.p[(row + r) * job.p_stride + n]);
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        acc[r][c] = V::fma(p, vs[c], acc[r][c]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kVectors; ++c) {
      V::store(out + r * job.width + c * V::kLanes, acc[r][c]);
    }
  }
}

template <int kRows>
void weighted_sum_rows(const WeightedSum& job, std::int64_t row) {
  std::int64_t column = 0;
  for (; column + 4 * V::kLanes <= job.width; column += 4 * V::kLanes) {
    weighted_sum_tile<kRows, 4>(job, row, column);
  }
  for (; column + V::kLanes <= job.width; column += V::kLanes) {
    weighted_sum_tile<kRows, 1>(job, row, column);
  }
  for (; column < job.width; ++column) {
    for (std::int64_t r = row; r < row + kRows; ++r) {
      float sum = job.acc[r * job.width + column] * job.factor[r];
      for (std::int64_t n = 0; n < job.count; ++n) {
        sum += job.p[r * job.p_stride + n] * job.v[n * job.v_stride + column];
      }
      job.acc[r * job.width + column] = sum;
    }
  }
}

void weighted_sum(const WeightedSum& job) {
  std::int64_t row = 0;
  for (; row + 2 <= job.rows; row += 2) {
    weighted_sum_rows<2>(job, row);
  }
  if (row < job.rows) {
    weighted_sum_rows<1>(job, row);
  }
}

// ---- Elementwise ------------------------------------------------------------

void rms_norm(const float* x,
              const float* weight,
              float epsilon,
              float* y,
              std::int64_t count) {
  F squares = V::set(0);
  std::int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    const F value = V::load(x + i);
    squares = V::fma(value, value, squares);
  }
  if (i < count) {
    const F value = load_tail(x + i, count - i);
    squares = V::fma(value, value, squares);
  }
  float sums[4];
  const F none = V::set(0);
  V::sum4(squares, none, none, none, sums);
  const float scale =
      1.0F / __builtin_sqrtf(sums[0] / static_cast<float>(count) + epsilon);
  const F scales = V::set(scale);
  for (i = 0; i + V::kLanes <= count; i += V::kLanes) {
    const F value = V::mul(V::load(x + i), scales);
    V::store(y + i,
             weight == nullptr ? value : V::mul(value, V::load(weight + i)));
  }
  for (; i < count; ++i) {
    y[i] = x[i] * scale * (weight == nullptr ? 1.0F : weight[i]);
  }
}

F silu_times(F x, F up) {
  const F one = V::set(1.0F);
  const F divisor = V::add(one, exp_of(V::sub(V::set(0), x)));
  return V::mul(V::div(x, divisor), up);
}

void silu_mul(const float* x, const float* up, float* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    V::store(y + i, silu_times(V::load(x + i), V::load(up + i)));
  }
  if (i < count) {
    const std::int64_t rest = count - i;
    store_tail(y + i,
               silu_times(load_tail(x + i, rest), load_tail(up + i, rest)),
               rest);
  }
}

constexpr Kernels kKernels{&matmul<float>,
                           &matmul<Bf16>,
                           &matmul<F16>,
                           &softmax_step,
                           &weighted_sum,
                           &rms_norm,
                           &silu_mul};

}  // namespace
}  // namespace nibble::backend::cpu
