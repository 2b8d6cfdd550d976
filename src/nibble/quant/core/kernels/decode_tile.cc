#include <algorithm>
#include <vector>

#include "nibble/quant/core/kernels/encode_tile.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

void check_sizes(const Quantized& quantized, const ScaleGrid& grid) {
  const NumberSpec& spec = quantized.spec;
  const Shape shape{quantized.rows, quantized.columns};
  const Shape grid_shape{grid.rows, grid.columns};
  const DType codes = spec.floating ? DType::kF8E4M3 : DType::kI8;
  NIBBLE_CHECK(
      quantized.codes.shape() == shape && quantized.codes.dtype() == codes,
      kInternal,
      "decode: found codes {} {}, expected {} {}",
      dtype_name(quantized.codes.dtype()),
      to_string(quantized.codes.shape()),
      dtype_name(codes),
      to_string(shape));
  NIBBLE_CHECK(quantized.scales.shape() == grid_shape,
               kInternal,
               "decode: found scales {}, expected {}",
               to_string(quantized.scales.shape()),
               to_string(grid_shape));
  NIBBLE_CHECK(!quantized.zeros || (quantized.zeros->dtype() == DType::kI8 &&
                                    quantized.zeros->shape() == grid_shape),
               kInternal,
               "decode: zero points do not match the scales {}",
               to_string(grid_shape));
  NIBBLE_CHECK(
      !quantized.order ||
          (quantized.order->dtype() == DType::kI32 &&
           quantized.order->view().elements() == quantized.columns &&
           std::ranges::all_of(quantized.order->view().as<std::int32_t>(),
                               [&](std::int32_t group) {
                                 return group >= 0 && group < grid.columns;
                               })),
      kInternal,
      "decode: order does not name a group below {} for each of {} columns",
      grid.columns,
      quantized.columns);
}

}  // namespace

void decode_grid_rows(const Quantized& quantized,
                      std::int64_t first,
                      std::int64_t count,
                      std::span<float> out,
                      ValueFn values) {
  const ScaleGrid grid =
      scale_grid(quantized.spec, quantized.rows, quantized.columns);
  check_sizes(quantized, grid);
  const auto columns = static_cast<std::size_t>(quantized.columns);
  NIBBLE_CHECK(first >= 0 && count >= 0 && count <= quantized.rows - first &&
                   out.size() == static_cast<std::size_t>(count) * columns,
               kInternal,
               "decode: found rows from {} and room for {} values, expected "
               "rows below {} and {} values",
               first,
               out.size(),
               quantized.rows,
               count * quantized.columns);
  if (out.empty()) {
    return;
  }
  // Scales of these rows alone.
  const std::int64_t grid_first = first / grid.rows_per_scale;
  const std::int64_t grid_rows =
      (first + count - 1) / grid.rows_per_scale - grid_first + 1;
  std::vector<float> scales(static_cast<std::size_t>(grid_rows * grid.columns));
  convert_to_float(quantized.scales.view().rows(grid_first, grid_rows), scales);
  std::vector<float> zeros(scales.size(), 0.0F);
  if (quantized.zeros) {
    convert_to_float(quantized.zeros->view().rows(grid_first, grid_rows),
                     zeros);
  }
  const auto codes = quantized.codes.view().raw<std::uint8_t>();
  float* row = out.data();
  for (std::int64_t r = first; r < first + count; ++r, row += columns) {
    const std::uint8_t* row_codes =
        codes.data() + static_cast<std::size_t>(r) * columns;
    const auto grid_row = static_cast<std::size_t>(
        (r / grid.rows_per_scale - grid_first) * grid.columns);
    if (quantized.order) {
      const auto order = quantized.order->view().as<std::int32_t>();
      for (std::size_t c = 0; c < columns; ++c) {
        const std::size_t at = grid_row + static_cast<std::size_t>(order[c]);
        values(&row_codes[c], 1, zeros[at], scales[at], &row[c]);
      }
    } else {
      const auto step = static_cast<std::size_t>(grid.columns_per_scale);
      std::size_t at = grid_row;
      for (std::size_t c = 0; c < columns; c += step, ++at) {
        values(&row_codes[c],
               std::min(step, columns - c),
               zeros[at],
               scales[at],
               &row[c]);
      }
    }
  }
}

}  // namespace nibble::quant
