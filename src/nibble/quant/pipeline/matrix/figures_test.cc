#include "nibble/quant/pipeline/matrix/figures.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "nibble/tensor/convert.h"
#include "nibble/tensor/tensor.h"

namespace nibble::quant {
namespace {

ErrorSums measured(std::span<const float> weight,
                   std::span<const float> decoded) {
  ErrorSums sums;
  add_errors(sums, weight, decoded);
  return sums;
}

TEST(MeasureError, GivesSumsOfSquaresAndTheLargestDifference) {
  const std::vector<float> weight{3, -4, 0.5F};
  const std::vector<float> decoded{2, -4, 1};
  const ErrorSums sums = measured(weight, decoded);
  EXPECT_DOUBLE_EQ(sums.error, 1.25);
  EXPECT_DOUBLE_EQ(sums.weight, 25.25);
  EXPECT_DOUBLE_EQ(sums.decoded, 21);
  EXPECT_DOUBLE_EQ(sums.product, 22.5);
  EXPECT_EQ(sums.max_abs, 1);
  const ErrorFigures figures = figures_of(sums);
  EXPECT_DOUBLE_EQ(figures.relative_mse, 1.25 / 25.25);
  EXPECT_NEAR(figures.cosine, 22.5 / std::sqrt(25.25 * 21), 1e-15);
}

// Lengths around the lanes and runs of the summation, against plain float64.
TEST(MeasureError, AgreesWithPlainSummationAtEveryLength) {
  for (const std::size_t length :
       {0U, 1U, 15U, 16U, 17U, 1023U, 1025U, 5000U}) {
    std::vector<float> weight(length);
    std::vector<float> decoded(length);
    double error = 0;
    double squares = 0;
    for (std::size_t i = 0; i < length; ++i) {
      weight[i] = std::sin(static_cast<float>(i));
      decoded[i] = weight[i] + 0.01F * std::cos(3 * static_cast<float>(i));
      const double w = static_cast<double>(weight[i]);
      const double e = w - static_cast<double>(decoded[i]);
      error += e * e;
      squares += w * w;
    }
    const ErrorSums sums = measured(weight, decoded);
    EXPECT_NEAR(sums.error, error, 1e-6 * error) << length;
    EXPECT_NEAR(sums.weight, squares, 1e-6 * squares) << length;
    const Tensor stored =
        Tensor::from_floats({static_cast<std::int64_t>(length)}, weight);
    for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
      if (cpu_has(isa)) {
        ErrorSums found;
        add_errors(found, stored.view(), decoded, isa);
        EXPECT_EQ(found, sums) << length << " " << isa_name(isa);
      }
    }
  }
}

// Every type of weight, cut anywhere at whole runs, on every processor.
TEST(MeasureError, IsTheSameForEverySetOfInstructionsAndCut) {
  constexpr std::size_t kLength = 5 * kErrorRun + 37;
  std::vector<float> values(kLength);
  std::vector<float> decoded(kLength);
  for (std::size_t i = 0; i < kLength; ++i) {
    values[i] = std::sin(static_cast<float>(i * i));
    decoded[i] = 1.01F * values[i];
  }
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    Tensor stored(dtype, {static_cast<std::int64_t>(kLength)});
    convert_from_float(values, stored.view());
    const ConstTensorView weight = std::as_const(stored).view();
    ErrorSums expected;
    add_errors(expected, weight, decoded, Isa::kPortable);
    EXPECT_GT(expected.error, 0);
    for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
      if (!cpu_has(isa)) {
        continue;
      }
      ErrorSums found;
      const auto cut = static_cast<std::int64_t>(2 * kErrorRun);
      add_errors(found,
                 weight.rows(0, cut),
                 std::span(decoded).first(2 * kErrorRun),
                 isa);
      add_errors(found,
                 weight.rows(cut, static_cast<std::int64_t>(kLength) - cut),
                 std::span(decoded).subspan(2 * kErrorRun),
                 isa);
      EXPECT_EQ(found, expected) << dtype_name(dtype) << " " << isa_name(isa);
    }
  }
}

// The ends of BF16: squares overflow or vanish in float32.
TEST(MeasureError, HoldsAtTheEndsOfTheRange) {
  for (const float scale : {3e38F, 1e30F, 1e-30F, 1e-36F}) {
    std::vector<float> weight(3000);
    std::vector<float> decoded(3000);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      weight[i] = scale * (static_cast<float>(i % 7 + 1) / 8);
      decoded[i] = weight[i] * 0.99F;
    }
    const ErrorFigures figures = figures_of(measured(weight, decoded));
    EXPECT_NEAR(figures.relative_mse, 1e-4, 1e-7) << scale;
    EXPECT_NEAR(figures.cosine, 1, 1e-9) << scale;
    EXPECT_GT(figures.max_abs, 0) << scale;
  }
}

TEST(FiguresOf, AreFiniteForZeros) {
  const std::vector<float> zero(4, 0.0F);
  const ErrorFigures same = figures_of(measured(zero, zero));
  EXPECT_EQ(same.relative_mse, 0);
  EXPECT_EQ(same.cosine, 1);
  const std::vector<float> one(4, 1.0F);
  const ErrorFigures lost = figures_of(measured(one, zero));
  EXPECT_EQ(lost.relative_mse, 1);
  EXPECT_EQ(lost.cosine, 0);
}

class Finite : public testing::TestWithParam<DType> {};

TEST_P(Finite, FindsNaNAndInfinityOfEveryType) {
  Tensor tensor = Tensor::zeros(GetParam(), {5, 40});
  EXPECT_TRUE(all_finite(tensor.view()));
  EXPECT_EQ(find_non_finite(tensor.view()).first, -1);
  std::vector<float> values(200, 1.0F);
  values[0] = -65504.0F;  // the largest of F16 is finite
  values[63] = -std::numeric_limits<float>::infinity();
  values[64] = std::numeric_limits<float>::quiet_NaN();
  values[65] = std::numeric_limits<float>::infinity();
  convert_from_float(values, tensor.view());
  EXPECT_FALSE(all_finite(tensor.view()));
  const NonFinite found = find_non_finite(tensor.view());
  EXPECT_EQ(found.first, 63);
  EXPECT_FALSE(found.first_is_nan);
  EXPECT_EQ(found.nan_count, 1);
  EXPECT_EQ(found.inf_count, 2);
}

INSTANTIATE_TEST_SUITE_P(
    DTypes, Finite, testing::Values(DType::kF32, DType::kF16, DType::kBF16));

}  // namespace
}  // namespace nibble::quant
