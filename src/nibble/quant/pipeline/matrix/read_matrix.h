#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nibble/container/checkpoint.h"

namespace nibble::quant {

// One weight matrix of the source, as a rectangle of a source tensor: a plain
// (rows, columns) weight, or one part of one expert of a stack.
struct MatrixSource {
  std::size_t tensor = 0;    // index into reader.tensors()
  std::int64_t rows = 0;     // out
  std::int64_t columns = 0;  // in
  // Stored input-major: element (r, c) is at offset + c * stride + r.
  bool transposed = false;
  std::int64_t offset_elements = 0;  // of element (0, 0)
  std::int64_t stride_elements = 0;  // between consecutive stored rows
};

// Stored rows of an input-major matrix that read_rows transposes at a time.
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

// Rows of an input-major matrix as they are stored, of which parts are turned
// into rows one after the other: a part stays in the caches until everything
// is made from it, while a whole tile of rows would not.
class StagedRows {
 public:
  // Bytes that `rows` rows take.
  [[nodiscard]] static std::size_t bytes(const MatrixSource& matrix,
                                         DType dtype,
                                         std::int64_t rows);

  // Reads rows [first, first + rows) into memory of bytes() bytes, which must
  // outlive the object.
  StagedRows(const container::CheckpointReader& reader,
             const MatrixSource& matrix,
             std::int64_t first,
             std::int64_t rows,
             std::span<std::byte> memory);

  // Rows [first, first + count) of those read; `into` is their memory.
  [[nodiscard]] ConstTensorView rows(std::int64_t first,
                                     std::int64_t count,
                                     std::vector<std::byte>& into) const;

 private:
  DType dtype_;
  std::int64_t columns_;
  std::size_t stride_;  // elements
  std::span<const std::byte> memory_;
};

// Throws kCorruptData that names the first NaN or infinity of a tensor, its
// position and how many there are; for a tensor that is known to hold one.
[[noreturn]] void refuse_non_finite(const container::CheckpointReader& reader,
                                    const container::TensorInfo& tensor);

}  // namespace nibble::quant
