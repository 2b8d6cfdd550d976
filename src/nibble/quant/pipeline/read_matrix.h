#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nibble/container/checkpoint.h"
#include "nibble/quant/pipeline/plan.h"

namespace nibble::quant {

// Stored rows of an input-major matrix that are transposed at a time.
inline constexpr std::int64_t kTransposeRows = 64;

// Fills out, whose size is that of whole rows, with rows from `first` of a
// matrix as (rows, columns) in the type that it is stored in. Input-major
// sources are transposed in blocks, for which block is scratch memory, so that
// no second copy of the tile exists.
void read_rows(const container::CheckpointReader& reader,
               const MatrixSource& matrix,
               std::int64_t first,
               std::span<std::byte> out,
               std::vector<std::byte>& block);

// Throws kCorruptData that names the first NaN or infinity of a tensor, its
// position and how many there are; for a tensor that is known to hold one.
[[noreturn]] void refuse_non_finite(const container::CheckpointReader& reader,
                                    const container::TensorInfo& tensor);

}  // namespace nibble::quant
