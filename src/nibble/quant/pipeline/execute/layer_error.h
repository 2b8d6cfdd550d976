#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nibble/container/checkpoint.h"
#include "nibble/quant/core/format.h"
#include "nibble/quant/core/scheme.h"
#include "nibble/quant/pipeline/matrix/figures.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {

// Adds the error of decoded rows against the (rows, columns) weight they stand
// for, in strips that stay in the first caches. values is scratch memory. One
// call or several, of whole_error_rows each but the last, give the same sums.
void measure_error(const Scheme& scheme,
                   const Quantized& quantized,
                   ConstTensorView weight,
                   std::vector<float>& values,
                   ErrorSums& sums);

// The fewest rows that are whole runs of kErrorRun elements.
[[nodiscard]] std::int64_t whole_error_rows(std::int64_t columns);

struct LayerComparison {
  ErrorSums sums;
  std::string source_checksum;  // as ItemResult::source_checksum
};

// Decodes a quantized module block of rows by block and compares it with the
// weight that it was made from, in the order in which execute() does, so that
// the figures are the same. kCheckFailed when the shapes differ.
[[nodiscard]] LayerComparison compare_layer(
    const container::CheckpointReader& source,
    const MatrixSource& matrix,
    const QuantizedCheckpoint& quantized,
    std::string_view module);

}  // namespace nibble::quant
