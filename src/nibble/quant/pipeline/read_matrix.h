#pragma once

#include <cstdint>
#include <string>

#include "nibble/container/checkpoint.h"
#include "nibble/quant/pipeline/plan.h"

namespace nibble::quant {

// Stored rows of an input-major matrix that are transposed at a time.
inline constexpr std::int64_t kTransposeRows = 64;

// Rows [first, first + count) of a matrix as a (count, columns) tensor in the
// type that it is stored in. Input-major sources are transposed in blocks, so
// that no second copy of the tile exists.
[[nodiscard]] Tensor read_rows(const container::CheckpointReader& reader,
                               const MatrixSource& matrix,
                               std::int64_t first,
                               std::int64_t count);

// Throws kCorruptData that names the first NaN or infinity of a tensor, its
// position and how many there are; for a tensor that is known to hold one.
[[noreturn]] void refuse_non_finite(const container::CheckpointReader& reader,
                                    const container::TensorInfo& tensor);

}  // namespace nibble::quant
