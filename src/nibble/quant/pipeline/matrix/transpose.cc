#include "nibble/quant/pipeline/matrix/transpose.h"

#include <algorithm>
#include <cstring>

namespace nibble::quant {
namespace {

constexpr std::size_t kLineBytes = 64;

template <typename T>
void transpose_plain(const T* from,
                     std::size_t from_stride,
                     std::size_t rows,
                     std::size_t columns,
                     T* to,
                     std::size_t to_stride) {
  constexpr std::size_t kLine = kLineBytes / sizeof(T);
  for (std::size_t r0 = 0; r0 < rows; r0 += kLine) {
    const std::size_t r1 = std::min(rows, r0 + kLine);
    for (std::size_t c0 = 0; c0 < columns; c0 += kLine) {
      const std::size_t c1 = std::min(columns, c0 + kLine);
      for (std::size_t r = r0; r < r1; ++r) {
        for (std::size_t c = c0; c < c1; ++c) {
          to[r * to_stride + c] = from[c * from_stride + r];
        }
      }
    }
  }
}

// Eight 16-bit elements; the compiler's own vectors, so that every processor
// gets its shuffles.
using Eight = std::uint16_t __attribute__((vector_size(16)));

Eight low_halves(Eight a, Eight b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}

Eight high_halves(Eight a, Eight b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

// An 8 x 8 square: three rounds of interleaving rows i and i + 4.
void transpose_square(const std::uint16_t* from,
                      std::size_t from_stride,
                      std::uint16_t* to,
                      std::size_t to_stride) {
  Eight rows[8];
  for (std::size_t i = 0; i < 8; ++i) {
    std::memcpy(&rows[i], from + i * from_stride, sizeof(Eight));
  }
  for (int round = 0; round < 3; ++round) {
    Eight next[8];
    for (std::size_t i = 0; i < 4; ++i) {
      next[2 * i] = low_halves(rows[i], rows[i + 4]);
      next[2 * i + 1] = high_halves(rows[i], rows[i + 4]);
    }
    std::copy_n(next, 8, rows);
  }
  for (std::size_t i = 0; i < 8; ++i) {
    std::memcpy(to + i * to_stride, &rows[i], sizeof(Eight));
  }
}

}  // namespace

std::size_t padded_stride(std::size_t elements, std::size_t element_bytes) {
  const std::size_t line = kLineBytes / element_bytes;
  return (elements + line - 1) / line * line + line;
}

void transpose(const std::uint16_t* from,
               std::size_t from_stride,
               std::size_t rows,
               std::size_t columns,
               std::uint16_t* to,
               std::size_t to_stride) {
  constexpr std::size_t kSquare = 8;
  constexpr std::size_t kLine = kLineBytes / sizeof(std::uint16_t);
  const std::size_t whole_rows = rows / kSquare * kSquare;
  const std::size_t whole_columns = columns / kSquare * kSquare;
  // A full line of each of eight target rows before the next eight.
  for (std::size_t c0 = 0; c0 < whole_columns; c0 += kLine) {
    const std::size_t c1 = std::min(whole_columns, c0 + kLine);
    for (std::size_t r = 0; r < whole_rows; r += kSquare) {
      if (r % kLine == 0) {
        // The same lines of the rows that come next: they are too far apart
        // for the processor to foresee. Beyond the end is allowed.
        for (std::size_t c = c0 + kLine; c < c1 + kLine; ++c) {
          __builtin_prefetch(from + c * from_stride + r);
        }
      }
      for (std::size_t c = c0; c < c1; c += kSquare) {
        transpose_square(from + c * from_stride + r,
                         from_stride,
                         to + r * to_stride + c,
                         to_stride);
      }
    }
  }
  // What squares leave over: columns at the right, then rows at the bottom.
  transpose_plain(from + whole_columns * from_stride,
                  from_stride,
                  rows,
                  columns - whole_columns,
                  to + whole_columns,
                  to_stride);
  transpose_plain(from + whole_rows,
                  from_stride,
                  rows - whole_rows,
                  whole_columns,
                  to + whole_rows * to_stride,
                  to_stride);
}

void transpose(const std::uint32_t* from,
               std::size_t from_stride,
               std::size_t rows,
               std::size_t columns,
               std::uint32_t* to,
               std::size_t to_stride) {
  transpose_plain(from, from_stride, rows, columns, to, to_stride);
}

}  // namespace nibble::quant
