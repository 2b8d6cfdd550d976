// Every kernel of every set of instructions that this processor has, against
// plain loops in double precision.

#include "nibble/backend/cpu/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/backend/cpu/row_blocks.h"
#include "nibble/base/cpu.h"
#include "nibble/tensor/convert.h"

namespace nibble::backend::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class CpuKernels : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!cpu_has(GetParam())) {
      GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
    }
  }

  static const Kernels& kernels() {
#if defined(__x86_64__)
    if (GetParam() == Isa::kAvx512) {
      return kernels_avx512();
    }
    if (GetParam() == Isa::kAvx2) {
      return kernels_avx2();
    }
#endif
    return kernels_portable();
  }

  std::vector<float> random(std::int64_t count, float scale = 1) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) {
      value = normal(generator_);
    }
    return values;
  }

  std::mt19937 generator_{20261130};
};

INSTANTIATE_TEST_SUITE_P(
    Isa,
    CpuKernels,
    testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512),
    [](const auto& param) { return std::string(isa_name(param.param)); });

template <typename W>
struct Stored;

template <>
struct Stored<float> {
  static float encode(float value) { return value; }

  static float decode(float value) { return value; }
};

template <>
struct Stored<Bf16> {
  static Bf16 encode(float value) { return {float_to_bf16(value)}; }

  static float decode(Bf16 value) { return bf16_to_float(value.bits); }
};

template <>
struct Stored<F16> {
  static F16 encode(float value) { return {float_to_f16(value)}; }

  static float decode(F16 value) { return f16_to_float(value.bits); }
};

template <typename W>
void expect_products(void (*matmul)(const MatmulBlock<W>&),
                     const std::vector<float>& x,
                     const std::vector<float>& plain_weight,
                     std::int64_t tokens,
                     std::int64_t rows,
                     std::int64_t k) {
  std::vector<W> weight;
  for (const float value : plain_weight) {
    weight.push_back(Stored<W>::encode(value));
  }
  const std::vector<float> bias(static_cast<std::size_t>(rows), 0.5F);
  std::vector<float> y(static_cast<std::size_t>(tokens * rows), NAN);
  MatmulBlock<W> block;
  block.x = x.data();
  block.x_stride = k;
  block.w = weight.data();
  block.w_stride = k;
  block.bias = bias.data();
  block.y = y.data();
  block.y_stride = rows;
  block.tokens = tokens;
  block.rows = rows;
  block.k = k;
  matmul(block);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0.5;
      double magnitude = 1;
      for (std::int64_t i = 0; i < k; ++i) {
        const double product =
            double{x[static_cast<std::size_t>(t * k + i)]} *
            Stored<W>::decode(weight[static_cast<std::size_t>(r * k + i)]);
        sum += product;
        magnitude += std::fabs(product);
      }
      // Each of at most k / lanes + lanes roundings is 2^-24 of what was
      // summed so far.
      ASSERT_NEAR(y[static_cast<std::size_t>(t * rows + r)],
                  sum,
                  magnitude * 0x1p-24 * (static_cast<double>(k) / 4 + 8))
          << "token " << t << " row " << r << " of " << tokens << " x " << rows
          << " x " << k;
    }
  }
}

TEST_P(CpuKernels, MatmulEqualsPlainLoopsForOddShapes) {
  for (const std::int64_t tokens : {1, 2, 3, 5, 6, 7, 13}) {
    for (const std::int64_t rows : {1, 3, 4, 8, 21}) {
      for (const std::int64_t k : {1, 7, 16, 33, 96, 576}) {
        const auto x = random(tokens * k);
        const auto weight = random(rows * k, 0.1F);
        expect_products(kernels().matmul_f32, x, weight, tokens, rows, k);
        expect_products(kernels().matmul_bf16, x, weight, tokens, rows, k);
        expect_products(kernels().matmul_f16, x, weight, tokens, rows, k);
      }
    }
  }
}

TEST_P(CpuKernels, MatmulReadsSubnormalHalvesExactly) {
  const std::vector<float> x{1.0F, 1.0F, 1.0F};
  const std::vector<float> weight{0x1p-24F, -0x1p-20F, 65504.0F};
  expect_products(kernels().matmul_f16, x, weight, 1, 1, 3);
  expect_products(kernels().matmul_f16, x, {0x1p-24F, 0x1p-23F, 0}, 1, 1, 3);
}

// Each half on its own, beside zeros, times one.
TEST_P(CpuKernels, MatmulReadsEveryHalfExactly) {
  std::vector<F16> halves(std::size_t{1} << 16);
  for (std::size_t bits = 0; bits < halves.size(); ++bits) {
    halves[bits].bits = static_cast<std::uint16_t>(bits);
  }
  const float one = 1;
  std::vector<float> y(halves.size());
  MatmulBlock<F16> block;
  block.x = &one;
  block.x_stride = 1;
  block.w = halves.data();
  block.w_stride = 1;
  block.y = y.data();
  block.y_stride = static_cast<std::int64_t>(y.size());
  block.tokens = 1;
  block.rows = static_cast<std::int64_t>(y.size());
  block.k = 1;
  kernels().matmul_f16(block);
  for (std::size_t bits = 0; bits < halves.size(); ++bits) {
    const float expected = f16_to_float(halves[bits].bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(y[bits])) << bits;
    } else {
      ASSERT_EQ(y[bits], expected) << bits;
    }
  }
}

TEST_P(CpuKernels, ATokensProductsDoNotDependOnItsNeighbours) {
  constexpr std::int64_t kTokens = 14;
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kDepth = 131;
  const auto x = random(kTokens * kDepth);
  const auto weight = random(kRows * kDepth);
  const auto run = [&](std::int64_t first_token,
                       std::int64_t tokens,
                       std::int64_t first_row,
                       std::int64_t rows,
                       std::vector<float>& y) {
    MatmulBlock<float> block;
    block.x = x.data() + first_token * kDepth;
    block.x_stride = kDepth;
    block.w = weight.data() + first_row * kDepth;
    block.w_stride = kDepth;
    block.y = y.data() + first_token * kRows + first_row;
    block.y_stride = kRows;
    block.tokens = tokens;
    block.rows = rows;
    block.k = kDepth;
    kernels().matmul_f32(block);
  };
  std::vector<float> whole(kTokens * kRows);
  run(0, kTokens, 0, kRows, whole);
  std::vector<float> parts(kTokens * kRows);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    run(t, 1, 0, 8, parts);
    run(t, 1, 8, 29, parts);
  }
  EXPECT_EQ(whole, parts);
}

TEST_P(CpuKernels, SoftmaxInStepsEqualsSoftmaxInOne) {
  const auto scores = random(100, 5);
  double most = -1e30;
  for (const float score : scores) {
    most = std::max<double>(most, score);
  }
  double total = 0;
  for (const float score : scores) {
    total += std::exp(score - most);
  }
  SoftmaxState state{-kInfinity, 0};
  std::vector<double> found;
  for (std::size_t begin = 0; begin < scores.size(); begin += 30) {
    const std::size_t count = std::min<std::size_t>(30, scores.size() - begin);
    std::vector<float> part(scores.begin() + static_cast<long>(begin),
                            scores.begin() + static_cast<long>(begin + count));
    const float factor = kernels().softmax_step(
        part.data(), static_cast<std::int64_t>(count), state);
    for (double& earlier : found) {
      earlier *= factor;
    }
    found.insert(found.end(), part.begin(), part.end());
  }
  EXPECT_FLOAT_EQ(state.maximum, static_cast<float>(most));
  EXPECT_NEAR(state.sum, total, 1e-5 * total);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    EXPECT_NEAR(found[i], std::exp(scores[i] - most), 1e-6);
  }
}

TEST_P(CpuKernels, UnseenScoresCountForNothing) {
  SoftmaxState state{-kInfinity, 0};
  std::vector<float> none(37, -kInfinity);
  EXPECT_EQ(kernels().softmax_step(none.data(), 37, state), 1.0F);
  EXPECT_EQ(none, std::vector<float>(37, 0.0F));
  EXPECT_EQ(state.sum, 0.0F);

  std::vector<float> some(37, -kInfinity);
  some[20] = 3;
  some[36] = 3;
  // Nothing was summed before, whatever it is multiplied with.
  EXPECT_EQ(kernels().softmax_step(some.data(), 37, state), 0.0F);
  EXPECT_EQ(state.sum, 2.0F);
  EXPECT_EQ(some[20], 1.0F);
  EXPECT_EQ(some[0], 0.0F);

  // A later block without anything visible changes nothing, exactly.
  std::vector<float> later(64, -kInfinity);
  EXPECT_EQ(kernels().softmax_step(later.data(), 64, state), 1.0F);
  EXPECT_EQ(state.sum, 2.0F);
  EXPECT_EQ(later, std::vector<float>(64, 0.0F));
}

TEST_P(CpuKernels, SoftmaxPassesNotANumberOn) {
  SoftmaxState state{-kInfinity, 0};
  std::vector<float> scores(20, 1.0F);
  scores[3] = NAN;
  kernels().softmax_step(scores.data(), 20, state);
  EXPECT_TRUE(std::isnan(state.sum));
}

TEST_P(CpuKernels, WeightedSumEqualsPlainLoops) {
  for (const std::int64_t rows : {1, 2, 3, 32}) {
    for (const std::int64_t width : {2, 16, 40, 64, 130}) {
      constexpr std::int64_t kCount = 13;
      constexpr std::int64_t kStride = 150;
      const auto p = random(rows * kCount);
      const auto v = random(kCount * kStride);
      const auto factor = random(rows);
      const auto before = random(rows * width);
      std::vector<float> acc = before;
      WeightedSum job;
      job.p = p.data();
      job.p_stride = kCount;
      job.v = v.data();
      job.v_stride = kStride;
      job.factor = factor.data();
      job.acc = acc.data();
      job.rows = rows;
      job.count = kCount;
      job.width = width;
      kernels().weighted_sum(job);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < width; ++c) {
          const auto at = static_cast<std::size_t>(r * width + c);
          double sum = double{before[at]} * factor[static_cast<std::size_t>(r)];
          for (std::int64_t n = 0; n < kCount; ++n) {
            sum += double{p[static_cast<std::size_t>(r * kCount + n)]} *
                   v[static_cast<std::size_t>(n * kStride + c)];
          }
          ASSERT_NEAR(acc[at], sum, 1e-5) << rows << " x " << width;
        }
      }
    }
  }
}

TEST_P(CpuKernels, RmsNormEqualsItsFormula) {
  for (const std::int64_t count : {1, 5, 16, 67, 576}) {
    const auto x = random(count, 3);
    const auto weight = random(count);
    double squares = 0;
    for (const float value : x) {
      squares += double{value} * value;
    }
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(count) + 1e-5);
    std::vector<float> y(x.size());
    kernels().rms_norm(x.data(), weight.data(), 1e-5F, y.data(), count);
    std::vector<float> in_place = x;
    kernels().rms_norm(in_place.data(), nullptr, 1e-5F, in_place.data(), count);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(y[i], x[i] * scale * weight[i], 2e-6 * (1 + std::fabs(y[i])));
      ASSERT_NEAR(
          in_place[i], x[i] * scale, 2e-6 * (1 + std::fabs(in_place[i])));
    }
  }
}

TEST_P(CpuKernels, RmsNormOfZerosIsZero) {
  std::vector<float> x(20, 0.0F);
  kernels().rms_norm(x.data(), nullptr, 1e-6F, x.data(), 20);
  EXPECT_EQ(x, std::vector<float>(20, 0.0F));
}

TEST_P(CpuKernels, SiluIsAccurateOverItsWholeRange) {
  std::vector<float> x;
  for (float value = -120; value <= 120; value += 0.37F) {
    x.push_back(value);
  }
  x.push_back(0);
  const std::vector<float> up(x.size(), 2.0F);
  std::vector<float> y(x.size());
  kernels().silu_mul(
      x.data(), up.data(), y.data(), static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = 2.0 * x[i] / (1 + std::exp(-double{x[i]}));
    // exp is cut off at 88: a result of 1e-36 may stand for a smaller one.
    EXPECT_NEAR(y[i], expected, 3e-7 * std::fabs(expected) + 1e-35) << x[i];
  }
}

TEST_P(CpuKernels, SiluPassesNotANumberOn) {
  const std::vector<float> x(19, NAN);
  std::vector<float> y(19, 0);
  kernels().silu_mul(x.data(), x.data(), y.data(), 19);
  for (const float value : y) {
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST(BlockRows, AreMultiplesThatFitTheCache) {
  for (const std::int64_t tokens : {1, 7, 8, 512}) {
    for (const std::int64_t rows : {1, 8, 576, 128256}) {
      for (const std::int64_t bytes : {2, 1152, 57344}) {
        const std::int64_t count = block_rows(rows, bytes, tokens, 8);
        EXPECT_GT(count, 0);
        EXPECT_EQ(count % 8, 0);
        if (bytes > 2) {
          EXPECT_LE(count * bytes, (std::int64_t{256} << 10) + 8 * bytes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace nibble::backend::cpu
