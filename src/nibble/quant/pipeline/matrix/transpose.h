#pragma once

#include <cstddef>
#include <cstdint>

namespace nibble::quant {

// Elements between rows of a source block that transposes well: cache lines
// of rows that lie a power of two apart evict each other.
[[nodiscard]] std::size_t padded_stride(std::size_t elements,
                                        std::size_t element_bytes);

// to[r * to_stride + c] = from[c * from_stride + r] for r < rows, c < columns.
// Strides in elements; from and to must not overlap.
void transpose(const std::uint16_t* from,
               std::size_t from_stride,
               std::size_t rows,
               std::size_t columns,
               std::uint16_t* to,
               std::size_t to_stride);
void transpose(const std::uint32_t* from,
               std::size_t from_stride,
               std::size_t rows,
               std::size_t columns,
               std::uint32_t* to,
               std::size_t to_stride);

}  // namespace nibble::quant
