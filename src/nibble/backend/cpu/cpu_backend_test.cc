#include "nibble/backend/cpu/cpu_backend.h"

#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "nibble/tensor/convert.h"

namespace nibble::backend {
namespace {

using Ids = std::vector<std::int32_t>;

class Cpu : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!cpu_has(GetParam())) {
      GTEST_SKIP() << "this processor has no " << isa_name(GetParam());
    }
    backend_ = std::make_unique<CpuBackend>(GetParam());
  }

  Tensor random(const Shape& shape) {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    for (float& value : values) {
      value = normal(generator_);
    }
    return Tensor::from_floats(shape, values);
  }

  static Ids counting(std::int32_t first, std::size_t count) {
    Ids ids(count);
    std::iota(ids.begin(), ids.end(), first);
    return ids;
  }

  static std::vector<float> values(const Tensor& tensor) {
    const auto floats = tensor.view().as<float>();
    return {floats.begin(), floats.end()};
  }

  Stream& stream() { return backend_->stream(); }

  std::unique_ptr<CpuBackend> backend_;
  std::mt19937 generator_{7};
};

INSTANTIATE_TEST_SUITE_P(
    Isa,
    Cpu,
    testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512),
    [](const auto& param) { return std::string(isa_name(param.param)); });

TEST_P(Cpu, EmbedConvertsRowsByTheirIds) {
  Tensor table(DType::kBF16, {3, 2});
  const std::vector<float> rows{1, 2, 3, 4, 5, 6};
  convert_from_float(rows, table.view());
  Tensor y(DType::kF32, {3, 2});
  backend_->embed(table.view(), Ids{2, 0, 2}, y.view(), stream());
  EXPECT_EQ(values(y), (std::vector<float>{5, 6, 1, 2, 5, 6}));
  expect_error(
      ErrorCode::kInvalidArgument, "token id: found 3, expected 0 to 2", [&] {
        backend_->embed(table.view(), Ids{0, 3, 0}, y.view(), stream());
      });
}

TEST_P(Cpu, MatmulOverManyBlocksEqualsPlainLoops) {
  // Enough rows for several tasks.
  constexpr std::int64_t kTokens = 9;
  constexpr std::int64_t kRows = 700;
  constexpr std::int64_t kDepth = 130;
  const Tensor x = random({kTokens, kDepth});
  const Tensor weight = random({kRows, kDepth});
  const Tensor bias = random({kRows});
  Tensor y(DType::kF32, {kTokens, kRows});
  backend_->matmul(x.view(), weight.view(), bias.view(), y.view(), stream());
  const auto xs = values(x);
  const auto ws = values(weight);
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t r = 0; r < kRows; ++r) {
      double sum = values(bias)[r];
      for (std::size_t i = 0; i < kDepth; ++i) {
        sum += double{xs[t * kDepth + i]} * ws[r * kDepth + i];
      }
      ASSERT_NEAR(y.view().as<float>()[t * kRows + r], sum, 2e-4);
    }
  }
}

TEST_P(Cpu, MatmulRefusesWhatDoesNotFit) {
  const Tensor x = random({2, 8});
  const Tensor weight = random({4, 9});
  Tensor y(DType::kF32, {2, 4});
  expect_error(ErrorCode::kInternal, "matmul: x: found shape (2, 8)", [&] {
    backend_->matmul(x.view(), weight.view(), {}, y.view(), stream());
  });
  const Tensor codes(DType::kI8, {4, 8});
  expect_error(ErrorCode::kUnsupported, "found a weight of I8", [&] {
    backend_->matmul(x.view(), codes.view(), {}, y.view(), stream());
  });
}

TEST_P(Cpu, RopeTurnsPairsByPositionTimesFrequency) {
  const std::vector<float> frequencies{1.0F, 0.5F};
  for (const bool interleaved : {false, true}) {
    const Tensor before = random({2, 3, 4});
    Tensor x = Tensor::copy_of(before.view());
    backend_->rope(x.view(), Ids{0, 5}, {frequencies, interleaved}, stream());
    for (std::size_t t = 0; t < 2; ++t) {
      for (std::size_t h = 0; h < 3; ++h) {
        for (std::size_t i = 0; i < 2; ++i) {
          const std::size_t head = (t * 3 + h) * 4;
          const std::size_t a = head + (interleaved ? 2 * i : i);
          const std::size_t b = interleaved ? a + 1 : a + 2;
          const double angle = (t == 0 ? 0 : 5) * frequencies[i];
          const double x0 = values(before)[a];
          const double x1 = values(before)[b];
          EXPECT_NEAR(
              values(x)[a], x0 * std::cos(angle) - x1 * std::sin(angle), 1e-6);
          EXPECT_NEAR(
              values(x)[b], x0 * std::sin(angle) + x1 * std::cos(angle), 1e-6);
        }
      }
    }
  }
}

// Softmax over what each position may see, in double precision.
std::vector<double> plain_attention(const Tensor& q,
                                    const Tensor& keys,
                                    const Tensor& values,
                                    const Ids& positions,
                                    std::int64_t chunk,
                                    double scale) {
  const auto heads = static_cast<std::size_t>(q.shape()[1]);
  const auto width = static_cast<std::size_t>(q.shape()[2]);
  const auto kv_heads = static_cast<std::size_t>(keys.shape()[1]);
  const auto qs = q.view().as<float>();
  const auto ks = keys.view().as<float>();
  const auto vs = values.view().as<float>();
  std::vector<double> y(qs.size());
  for (std::size_t t = 0; t < positions.size(); ++t) {
    const auto last = static_cast<std::size_t>(positions[t]);
    const auto size = static_cast<std::size_t>(chunk);
    const std::size_t first = chunk > 0 ? last / size * size : 0;
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t kv = h / (heads / kv_heads);
      const std::size_t at = (t * heads + h) * width;
      double total = 0;
      for (std::size_t p = first; p <= last; ++p) {
        double score = 0;
        for (std::size_t i = 0; i < width; ++i) {
          score += double{qs[at + i]} * ks[(p * kv_heads + kv) * width + i];
        }
        const double weight = std::exp(score * scale);
        total += weight;
        for (std::size_t i = 0; i < width; ++i) {
          y[at + i] += weight * vs[(p * kv_heads + kv) * width + i];
        }
      }
      for (std::size_t i = 0; i < width; ++i) {
        y[at + i] /= total;
      }
    }
  }
  return y;
}

struct AttentionCase {
  std::int64_t heads, kv_heads, width, chunk;
  std::int32_t first;
  std::size_t tokens;
};

TEST_P(Cpu, AttentionEqualsPlainSoftmax) {
  const AttentionCase cases[] = {
      {1, 1, 16, 0, 0, 1},     // the first token
      {4, 2, 32, 0, 0, 150},   // a prompt over several blocks
      {6, 2, 20, 0, 130, 3},   // odd width, past positions
      {9, 3, 64, 0, 200, 1},   // one token
      {4, 4, 16, 48, 0, 200},  // chunks that are no multiple of a block
      {2, 1, 16, 64, 63, 2},   // over a chunk's edge
      {2, 1, 16, 10, 255, 1},
      {40, 1, 8, 0, 0, 5},  // more heads than a tile has rows
  };
  for (const AttentionCase& c : cases) {
    const std::int64_t tokens = static_cast<std::int64_t>(c.tokens);
    const std::int64_t filled = c.first + tokens;
    const Tensor q = random({tokens, c.heads, c.width});
    const Tensor k = random({filled, c.kv_heads, c.width});
    const Tensor v = random({filled, c.kv_heads, c.width});
    const Ids positions = counting(c.first, c.tokens);
    Tensor y(DType::kF32, q.shape());
    backend_->attention(q.view(),
                        k.view(),
                        v.view(),
                        positions,
                        {c.chunk},
                        0.25F,
                        y.view(),
                        stream());
    const auto expected = plain_attention(q, k, v, positions, c.chunk, 0.25);
    const auto found = values(y);
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 2e-5)
          << c.heads << " heads from position " << c.first;
    }
  }
}

TEST_P(Cpu, AttentionOfATokenDoesNotDependOnItsNeighbours) {
  constexpr std::size_t kTokens = 150;
  for (const std::int64_t chunk : {0, 50}) {
    const Tensor q = random({kTokens, 4, 24});
    const Tensor k = random({kTokens, 2, 24});
    const Tensor v = random({kTokens, 2, 24});
    const Ids positions = counting(0, kTokens);
    Tensor whole(DType::kF32, q.shape());
    backend_->attention(q.view(),
                        k.view(),
                        v.view(),
                        positions,
                        {chunk},
                        0.2F,
                        whole.view(),
                        stream());
    Tensor single(DType::kF32, q.shape());
    for (std::size_t t = 0; t < kTokens; ++t) {
      const auto row = static_cast<std::int64_t>(t);
      backend_->attention(q.view().rows(row, 1),
                          k.view().rows(0, row + 1),
                          v.view().rows(0, row + 1),
                          std::span(positions).subspan(t, 1),
                          {chunk},
                          0.2F,
                          single.view().rows(row, 1),
                          stream());
    }
    EXPECT_EQ(values(whole), values(single));
  }
}

TEST_P(Cpu, AttentionIsFiniteForExtremeScores) {
  const Tensor q = Tensor::from_floats({1, 1, 2}, {1e4F, 0});
  const Tensor k = Tensor::from_floats({2, 1, 2}, {1e4F, 0, -1e4F, 0});
  const Tensor v = Tensor::from_floats({2, 1, 2}, {1, 2, 3, 4});
  Tensor y(DType::kF32, {1, 1, 2});
  backend_->attention(
      q.view(), k.view(), v.view(), Ids{1}, {}, 1, y.view(), stream());
  EXPECT_EQ(values(y), (std::vector<float>{1, 2}));
}

TEST_P(Cpu, AttentionRefusesPositionsWithoutKeys) {
  const Tensor q = random({1, 1, 2});
  const Tensor k = random({2, 1, 2});
  Tensor y(DType::kF32, {1, 1, 2});
  expect_error(ErrorCode::kInternal, "found position 2, expected 0 to 1", [&] {
    backend_->attention(
        q.view(), k.view(), k.view(), Ids{2}, {}, 1, y.view(), stream());
  });
}

TEST_P(Cpu, NormOfHeadsIsByHead) {
  const Tensor x = Tensor::from_floats({1, 2, 2}, {3, 4, 6, 8});
  Tensor y(DType::kF32, x.shape());
  backend_->rms_norm(x.view(), {}, 0, y.view(), stream());
  // Root mean squares: sqrt(12.5) and twice that.
  const float root = std::sqrt(12.5F);
  const std::vector<float> expected{3 / root, 4 / root, 3 / root, 4 / root};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(values(y)[i], expected[i]);
  }
}

TEST_P(Cpu, RowsAreGatheredScaledAndAddedBack) {
  const Tensor x = Tensor::from_floats({3, 2}, {1, 2, 3, 4, 5, 6});
  Tensor picked(DType::kF32, {2, 2});
  backend_->gather_rows(x.view(),
                        Ids{2, 0},
                        std::vector<float>{10, 0.5F},
                        picked.view(),
                        stream());
  EXPECT_EQ(values(picked), (std::vector<float>{50, 60, 0.5F, 1}));
  Tensor sum = Tensor::copy_of(x.view());
  backend_->add_to_rows(picked.view(), Ids{2, 1}, sum.view(), stream());
  EXPECT_EQ(values(sum), (std::vector<float>{1, 2, 3.5F, 5, 55, 66}));
}

TEST_P(Cpu, AddsAndCopies) {
  Tensor x = Tensor::from_floats({3}, {1, 2, 3});
  const Tensor y = Tensor::from_floats({3}, {10, 20, 30});
  backend_->add(x.view(), y.view(), stream());
  EXPECT_EQ(values(x), (std::vector<float>{11, 22, 33}));
  backend_->copy(y.view(), x.view(), stream());
  EXPECT_EQ(values(x), values(y));
  EXPECT_EQ(values(backend_->to_host(y.view(), stream())), values(y));
  Tensor other(DType::kF32, {2});
  expect_error(ErrorCode::kInternal, "copy: to: found shape (2)", [&] {
    backend_->copy(y.view(), other.view(), stream());
  });
}

TEST(CpuBackendFactory, GivesTheBestThatIsAllowed) {
  EXPECT_EQ(cpu_backend().isa(), best_isa());
  EXPECT_EQ(&cpu_backend(), &cpu_backend());
}

}  // namespace
}  // namespace nibble::backend
