#include "nibble/quant/pipeline/layer_error.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "nibble/base/error.h"
#include "nibble/base/hash.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/read_matrix.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {

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
  std::vector<float> decoded(most);
  std::vector<std::byte> source_bytes(most * dtype_bytes(dtype));
  std::vector<std::byte> block;
  for (std::int64_t row = 0; row < matrix.rows; row += unit) {
    const std::int64_t count = std::min(unit, matrix.rows - row);
    const auto elements = static_cast<std::size_t>(count * matrix.columns);
    const auto bytes =
        std::span(source_bytes).first(elements * dtype_bytes(dtype));
    read_rows(source, matrix, row, bytes, block);
    hasher.update(bytes);
    scheme.decode(quantized.unpack(module, row, count),
                  TensorView(reinterpret_cast<std::byte*>(decoded.data()),
                             DType::kF32,
                             {count, matrix.columns}));
    result.sums += measure_error({bytes.data(), dtype, {count, matrix.columns}},
                                 std::span(decoded).first(elements));
  }
  result.source_checksum = hasher.digest();
  return result;
}

}  // namespace nibble::quant
