#include "nibble/quant/schemes/common/weight_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

constexpr std::int64_t kSlabRows = 128;

ScaleKind scale_kind(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return ScaleKind::kBF16;
    case DType::kF16:
      return ScaleKind::kF16;
    case DType::kF32:
      return ScaleKind::kF32;
    default:
      fail(ErrorCode::kUnsupported,
           "weight scales: found {}, expected F32, F16 or BF16",
           dtype_name(dtype));
  }
}

// Least common multiple of the rows that a tile and a scale block span.
std::int64_t slab_rows(const NumberSpec& spec) {
  if (spec.grain != Grain::kBlock) {
    return kSlabRows;
  }
  std::int64_t rows = spec.block_rows;
  while (rows % kTileRows != 0) {
    rows += spec.block_rows;
  }
  return rows * std::max<std::int64_t>(1, kSlabRows / rows);
}

void check_shape(const char* what, ConstTensorView found, const Shape& shape) {
  NIBBLE_CHECK(found.shape() == shape,
               kCorruptData,
               "{}: found shape {}, expected {}",
               what,
               to_string(found.shape()),
               to_string(shape));
}

void check_integers(const char* what, ConstTensorView values, int bits) {
  const int limit = 1 << (bits - 1);
  for (const std::int8_t value : values.as<std::int8_t>()) {
    NIBBLE_CHECK(value >= -limit && value < limit,
                 kCorruptData,
                 "{}: found {}, expected {} to {}",
                 what,
                 static_cast<int>(value),
                 -limit,
                 limit - 1);
  }
}

void check_no_nan(ConstTensorView codes) {
  for (const std::uint8_t code : codes.raw<std::uint8_t>()) {
    NIBBLE_CHECK((code & 0x7Fu) != 0x7Fu,
                 kCorruptData,
                 "fp8 codes: found NaN (0x{:02X}), expected numbers",
                 code);
  }
}

void check_slab(const Quantized& slab,
                const NumberSpec& spec,
                std::int64_t rows,
                std::int64_t columns) {
  NIBBLE_CHECK(slab.rows == rows && slab.columns == columns,
               kCorruptData,
               "codes: found {} x {} rows x columns, expected {} x {}",
               slab.rows,
               slab.columns,
               rows,
               columns);
  NIBBLE_CHECK(!slab.order,
               kUnsupported,
               "codes: found columns in a group order of their own (g_idx), "
               "expected consecutive groups");
  check_shape("codes", slab.codes.view(), {rows, columns});
  const ScaleGrid grid = scale_grid(spec, rows, columns);
  check_shape("scales", slab.scales.view(), {grid.rows, grid.columns});
  NIBBLE_CHECK(slab.scales.dtype() == spec.scale_dtype,
               kCorruptData,
               "scales: found {}, expected {}",
               dtype_name(slab.scales.dtype()),
               dtype_name(spec.scale_dtype));
  NIBBLE_CHECK(slab.zeros.has_value() != spec.symmetric,
               kCorruptData,
               "zero points: found {}, expected the opposite",
               slab.zeros ? "some" : "none");
  if (slab.zeros) {
    check_shape("zero points", slab.zeros->view(), {grid.rows, grid.columns});
    check_integers("zero points", slab.zeros->view(), spec.bits);
  }
  if (spec.floating) {
    check_no_nan(slab.codes.view());
  } else {
    check_integers("codes", slab.codes.view(), spec.bits);
  }
}

}  // namespace

void for_each_tile(const NumberSpec& spec,
                   std::int64_t rows,
                   std::int64_t columns,
                   const RowSource& codes,
                   FunctionRef<void(const Quantized& slab,
                                    std::int64_t first_row,
                                    std::int64_t tile)> body) {
  const std::int64_t step = slab_rows(spec);
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t count = std::min(step, rows - first);
    const Quantized slab = codes(first, count);
    check_slab(slab, spec, count, columns);
    const std::int64_t first_tile = first / kTileRows;
    parallel_for(divide_up(count, kTileRows),
                 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t tile = begin; tile < end; ++tile) {
                     body(slab, first, first_tile + tile);
                   }
                 });
  }
}

ScaleTiles::ScaleTiles(const NumberSpec& spec,
                       std::int64_t rows,
                       std::int64_t columns,
                       const backend::Backend& backend)
    : rows_(rows),
      grid_(scale_grid(spec, rows, columns)),
      kind_(scale_kind(spec.scale_dtype)),
      scales_(backend.allocate(
          spec.scale_dtype,
          {divide_up(rows, kTileRows), grid_.columns, kTileRows})) {}

void ScaleTiles::fill(const Quantized& slab,
                      std::int64_t first_row,
                      std::int64_t tile) {
  const std::size_t bytes = dtype_bytes(scales_.dtype());
  const std::byte* from = slab.scales.view().data();
  std::byte* to =
      scales_.view().data() +
      static_cast<std::size_t>(tile * grid_.columns * kTileRows) * bytes;
  for (std::int64_t column = 0; column < grid_.columns; ++column) {
    for (std::int64_t i = 0; i < kTileRows; ++i, to += bytes) {
      const std::int64_t row = tile * kTileRows + i;
      if (row >= rows_) {
        std::memset(to, 0, bytes);
        continue;
      }
      // Slabs start where a block of rows starts, so the slab's own grid
      // counts from first_row.
      const std::int64_t grid_row =
          grid_.rows == 1 ? 0 : (row - first_row) / grid_.rows_per_scale;
      std::memcpy(
          to,
          from + static_cast<std::size_t>(grid_row * grid_.columns + column) *
                     bytes,
          bytes);
    }
  }
  std::vector<float> values(
      static_cast<std::size_t>(grid_.columns * kTileRows));
  convert_to_float(std::as_const(scales_).view().rows(tile, 1), values);
  for (const float value : values) {
    NIBBLE_CHECK(std::isfinite(value),
                 kCorruptData,
                 "scales of rows from {}: found {}, expected finite numbers",
                 tile * kTileRows,
                 value);
  }
}

std::vector<float> float_bias(const std::optional<Tensor>& bias,
                              std::int64_t rows) {
  std::vector<float> values;
  if (!bias) {
    return values;
  }
  NIBBLE_CHECK(bias->shape().elements() == rows,
               kCorruptData,
               "bias: found {} elements, expected {}",
               bias->shape().elements(),
               rows);
  values.resize(static_cast<std::size_t>(rows));
  convert_to_float(bias->view(), values);
  return values;
}

std::optional<float> static_input_scale(
    const std::optional<NumberSpec>& input,
    const std::optional<Tensor>& input_scale) {
  const bool is_static = input && input->grain == Grain::kTensor;
  NIBBLE_CHECK(is_static == input_scale.has_value(),
               kCorruptData,
               "input_scale: found {}, expected {}",
               input_scale ? "one" : "none",
               is_static ? "one, the inputs are static" : "none");
  if (!is_static) {
    return std::nullopt;
  }
  NIBBLE_CHECK(input_scale->shape().elements() == 1,
               kCorruptData,
               "input_scale: found {} elements, expected 1",
               input_scale->shape().elements());
  float value = 0;
  convert_to_float(input_scale->view(), std::span(&value, 1));
  NIBBLE_CHECK(std::isfinite(value) && value > 0,
               kCorruptData,
               "input_scale: found {}, expected a finite number above 0",
               value);
  return value;
}

Tensor allocate_weights(const backend::Backend& backend, std::int64_t bytes) {
  Tensor tensor = backend.allocate(DType::kU8, {bytes});
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.view().data());
  const std::uintptr_t first = round_up(begin, page);
  const std::uintptr_t last =
      (begin + static_cast<std::uintptr_t>(bytes)) / page * page;
  if (last > first) {
    // Only advice: small pages serve as well, more slowly.
    static_cast<void>(madvise(reinterpret_cast<void*>(first),  // NOLINT
                              last - first,
                              MADV_HUGEPAGE));
  }
  return tensor;
}

}  // namespace nibble::quant
