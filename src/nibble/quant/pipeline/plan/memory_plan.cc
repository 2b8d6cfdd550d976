#include <algorithm>
#include <numeric>

#include "nibble/base/checked_math.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/matrix/read_matrix.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {
namespace {

// A tile of more source bytes than this gains nothing: it leaves the caches
// anyway, and fewer tiles balance worse.
constexpr std::int64_t kTileSourceBytes = 2 << 20;
// Input-major sources are read a stored row at a time, one system call each;
// 8 KiB a call is where its cost vanishes beside the copy.
constexpr std::int64_t kTransposedRows = 4096;
// Beside the source's own bytes a unit needs, for each weight, its decoded
// value in float32, a code, packed bytes, and what a scheme may want.
constexpr std::uint64_t kUnitBytesPerWeight = 4 + 1 + 1 + 4;

std::uint64_t output_bytes_of(const PlannedLayer& layer) {
  std::uint64_t bytes = 0;
  for (const container::TensorInfo& output : layer.outputs) {
    bytes += output.bytes;
  }
  return bytes;
}

}  // namespace

std::int64_t unit_rows(const LayerSpec& spec,
                       std::int64_t multiple,
                       std::int64_t rows) {
  multiple = std::lcm(multiple, kUnpackRows);
  if (spec.weight.grain == Grain::kBlock) {
    multiple = std::lcm(multiple, spec.weight.block_rows);
  }
  return std::min(multiple, rows);
}

std::int64_t tile_unit_rows(const Plan& plan, const PlannedLayer& layer) {
  return unit_rows(layer.spec.value_or(LayerSpec{}),
                   format_named(plan.format).row_multiple(),
                   layer.source.rows);
}

std::uint64_t tile_cost_bytes(const Plan& plan,
                              const PlannedLayer& layer,
                              DType source_dtype,
                              std::int64_t rows) {
  const auto columns = static_cast<std::uint64_t>(layer.source.columns);
  const auto tile = static_cast<std::uint64_t>(rows) * columns;
  const auto unit = static_cast<std::uint64_t>(tile_unit_rows(plan, layer));
  std::uint64_t source = tile * dtype_bytes(source_dtype);
  if (layer.source.transposed && layer.spec) {
    source = StagedRows::bytes(layer.source, source_dtype, rows) +
             unit * columns * dtype_bytes(source_dtype);
  } else if (layer.source.transposed) {
    source += static_cast<std::uint64_t>(rows * kTransposeRows) *
              dtype_bytes(source_dtype);
  }
  const std::uint64_t outputs =
      divide_up(output_bytes_of(layer) * static_cast<std::uint64_t>(rows),
                static_cast<std::uint64_t>(layer.source.rows));
  if (!layer.spec) {
    return source;  // the tile is the output
  }
  // Scattered rows are collected: a byte a code, and scales like the outputs'.
  const std::uint64_t collected =
      format_named(plan.format).scatters_rows()
          ? static_cast<std::uint64_t>(rows) * columns + outputs
          : 0;
  return source + outputs + collected + unit * columns * kUnitBytesPerWeight;
}

std::int64_t tile_rows(const Plan& plan,
                       const PlannedLayer& layer,
                       DType source_dtype,
                       int workers) {
  const std::int64_t unit = tile_unit_rows(plan, layer);
  // One share more than workers: a finished tile may wait for its digest.
  const std::uint64_t share =
      plan.buffer_bytes / (static_cast<std::uint64_t>(workers) + 1);
  const std::int64_t row_bytes =
      layer.source.columns *
      static_cast<std::int64_t>(dtype_bytes(source_dtype));
  std::int64_t wanted = kTileSourceBytes / row_bytes;
  if (layer.source.transposed) {
    wanted = std::max(wanted, kTransposedRows);
  }
  const std::int64_t all = divide_up(layer.source.rows, unit);
  std::int64_t units = std::clamp<std::int64_t>(wanted / unit, 1, all);
  // Tiles of equal size, so that none is much dearer to read than others.
  units = divide_up(all, divide_up(all, units));
  while (units > 1 &&
         tile_cost_bytes(plan, layer, source_dtype, units * unit) > share) {
    units = units / 2;
  }
  return std::min(units * unit, layer.source.rows);
}

}  // namespace nibble::quant
