#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "nibble/quant/core/scheme.h"
#include "nibble/quant/pipeline/figures.h"
#include "nibble/quant/pipeline/plan.h"

namespace nibble::quant {

// Adjoining bytes of one output tensor of a layer.
struct PackedRun {
  std::size_t output = 0;  // index into PlannedLayer::outputs
  std::uint64_t offset = 0;
  std::vector<std::byte> bytes;
};

// Rows of one layer that are to be quantized.
struct TileJob {
  const Plan& plan;
  const PlannedLayer& layer;
  const EncodeOptions& options;
  std::int64_t first_row = 0;  // a multiple of tile_unit_rows()
  ConstTensorView weight;      // (rows, columns), finite
};

// Encodes and packs a tile unit by unit, so that codes never take more memory
// than a unit's. sums[i] becomes the error of the tile's unit i.
[[nodiscard]] std::vector<PackedRun> pack_tile(const TileJob& job,
                                               std::span<ErrorSums> sums);

// Least and greatest value of a finite tile, F32, F16 or BF16; never above,
// respectively below, zero.
[[nodiscard]] std::pair<float, float> range_of(ConstTensorView tile);

}  // namespace nibble::quant
