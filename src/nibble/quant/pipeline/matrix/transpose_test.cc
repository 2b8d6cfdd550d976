#include "nibble/quant/pipeline/matrix/transpose.h"

#include <vector>

#include <gtest/gtest.h>

namespace nibble::quant {
namespace {

template <typename T>
void expect_transposed(std::size_t rows, std::size_t columns) {
  const std::size_t from_stride = padded_stride(rows, sizeof(T));
  const std::size_t to_stride = columns + 3;
  std::vector<T> from(columns * from_stride);
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<T>(i * 2654435761U >> 7);
  }
  constexpr T kUntouched = 0x1234;
  std::vector<T> to(rows * to_stride, kUntouched);
  transpose(from.data(), from_stride, rows, columns, to.data(), to_stride);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < to_stride; ++c) {
      const T expected = c < columns ? from[c * from_stride + r] : kUntouched;
      ASSERT_EQ(to[r * to_stride + c], expected)
          << rows << " x " << columns << " at " << r << ", " << c;
    }
  }
}

// Around the squares of 8 and the lines of 32.
TEST(Transpose, MovesEveryElementOfAwkwardShapes) {
  for (const std::size_t rows : {0U, 1U, 7U, 8U, 9U, 16U, 33U, 160U}) {
    for (const std::size_t columns : {0U, 1U, 7U, 8U, 31U, 32U, 40U, 64U}) {
      expect_transposed<std::uint16_t>(rows, columns);
      expect_transposed<std::uint32_t>(rows, columns);
    }
  }
}

TEST(PaddedStride, IsNoPowerOfTwoOfLines) {
  EXPECT_EQ(padded_stride(2048, 2), 2080u);
  EXPECT_EQ(padded_stride(1, 2), 64u);
  EXPECT_EQ(padded_stride(16, 4), 32u);
}

}  // namespace
}  // namespace nibble::quant
