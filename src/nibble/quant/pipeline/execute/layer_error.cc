#include "nibble/quant/pipeline/execute/layer_error.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "nibble/base/cpu.h"
#include "nibble/base/error.h"
#include "nibble/base/hash/hash.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/matrix/read_matrix.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {

std::int64_t whole_error_rows(std::int64_t columns) {
  constexpr auto kRun = static_cast<std::int64_t>(kErrorRun);
  return kRun / std::gcd(kRun, columns);
}

void measure_error(const Scheme& scheme,
                   const Quantized& quantized,
                   ConstTensorView weight,
                   std::vector<float>& values,
                   ErrorSums& sums) {
  constexpr auto kStrip = static_cast<std::int64_t>(4 * kErrorRun);  // elements
  const std::int64_t rows = weight.dim(0);
  const std::int64_t columns = weight.dim(1);
  if (rows == 0 || columns == 0) {
    return;
  }
  // As few rows as make whole runs, or a few times that.
  std::int64_t step = whole_error_rows(columns);
  step *= std::max<std::int64_t>(1, kStrip / (step * columns));
  step = std::min(step, rows);
  values.resize(static_cast<std::size_t>(step * columns));
  const Isa isa = best_isa();
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    const auto strip =
        std::span(values).first(static_cast<std::size_t>(count * columns));
    scheme.decode_rows(quantized, row, count, strip);
    add_errors(sums, weight.rows(row, count), strip, isa);
  }
}

LayerComparison compare_layer(const container::CheckpointReader& source,
                              const MatrixSource& matrix,
                              const QuantizedCheckpoint& quantized,
                              std::string_view module) {
  const Shape expected{matrix.rows, matrix.columns};
  const Shape found = quantized.weight_shape(module);
  NIBBLE_CHECK(found == expected,
               kCheckFailed,
               "module {}: found shape {}, expected {} as in the source",
               printable(module),
               to_string(found),
               to_string(expected));
  const LayerSpec spec = quantized.spec_of(module).value();
  const Scheme& scheme = scheme_for(spec.weight);
  const std::int64_t unit = unit_rows(spec, kUnpackRows, matrix.rows);
  const DType dtype = source.tensors()[matrix.tensor].dtype;
  LayerComparison result;
  Hasher hasher;
  const auto most = static_cast<std::size_t>(unit * matrix.columns);
  std::vector<float> decoded;
  std::vector<std::byte> source_bytes(most * dtype_bytes(dtype));
  std::vector<std::byte> block;
  for (std::int64_t row = 0; row < matrix.rows; row += unit) {
    const std::int64_t count = std::min(unit, matrix.rows - row);
    const auto elements = static_cast<std::size_t>(count * matrix.columns);
    const auto bytes =
        std::span(source_bytes).first(elements * dtype_bytes(dtype));
    read_rows(source, matrix, row, bytes, block);
    if (matrix.transposed) {
      hasher.update(hash_bytes(bytes));
    } else {
      hasher.update(bytes);
    }
    ErrorSums unit_sums;
    measure_error(scheme,
                  quantized.unpack(module, row, count),
                  {bytes.data(), dtype, {count, matrix.columns}},
                  decoded,
                  unit_sums);
    result.sums += unit_sums;
  }
  result.source_checksum = hasher.digest();
  return result;
}

}  // namespace nibble::quant
