#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "nibble/base/function_ref.h"
#include "nibble/quant/core/scheme.h"
#include "nibble/quant/pipeline/matrix/figures.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {

// Adjoining bytes of one output tensor of a layer.
struct PackedRun {
  std::size_t output = 0;  // index into PlannedLayer::outputs
  std::uint64_t offset = 0;
  std::span<std::byte> bytes;
};

// Memory that tiles share, one object a thread.
struct TileScratch {
  std::vector<float> decoded;
  std::vector<std::byte> block;  // of read_rows, or a unit of StagedRows
};

// Rows of one layer that are to be quantized.
struct TileJob {
  const Plan& plan;
  const PlannedLayer& layer;
  const EncodeOptions& options;
  std::int64_t first_row = 0;  // a multiple of tile_unit_rows()
  std::int64_t rows = 0;
  // Rows [first, first + count) of the tile, finite; called for a unit at a
  // time, in order. Valid until the next call.
  FunctionRef<ConstTensorView(std::int64_t first, std::int64_t count)> weight;
  const CodeSource* codes = nullptr;  // as Execution::codes
};

// Memory that pack_tile needs for the packed bytes of `rows` rows.
[[nodiscard]] std::size_t packed_bytes(const PlannedLayer& layer,
                                       std::int64_t rows);

// Encodes and packs a tile unit by unit, so that codes never take more memory
// than a unit's. The runs lie in packed, of packed_bytes() bytes. sums[i]
// becomes the error of the tile's unit i.
[[nodiscard]] std::vector<PackedRun> pack_tile(const TileJob& job,
                                               std::span<std::byte> packed,
                                               std::span<ErrorSums> sums,
                                               TileScratch& scratch);

// Least and greatest value of a finite tile, F32, F16 or BF16; never above,
// respectively below, zero.
[[nodiscard]] std::pair<float, float> range_of(ConstTensorView tile);

}  // namespace nibble::quant
