#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "nibble/backend/backend.h"
#include "nibble/base/cpu.h"
#include "nibble/model/linear.h"
#include "nibble/quant/core/scheme.h"

namespace nibble::quant {

// The layer that computes y = x W^T from FP8 E4M3 codes on the CPU. W is
// (rows, columns), one byte a weight, never expanded.
//
// codes is called for tiles of rows in rising order, at multiples of
// block_rows. bias (rows) is F32, F16 or BF16. input_scale (1) belongs to
// inputs of Grain::kTensor and to no other.
//
// With spec.input the activations are rounded to the E4M3 grid first: kToken
// with the token's absolute maximum / 448 as scale, kGroup the same for each
// run of input->group columns, kTensor with input_scale, saturating. Products
// and sums are float32. Results do not depend on the number of threads, and on
// the number of tokens only by float rounding.
//
// kUnsupported for a spec that no kernel serves, kCorruptData for NaN codes
// (0x7F, 0xFF) and non-finite scales.
//
// isa: a set of instructions that the processor has (cpu_has).
[[nodiscard]] std::unique_ptr<model::Linear> make_fp8_linear(
    const LayerSpec& spec,
    std::int64_t rows,
    std::int64_t columns,
    const RowSource& codes,
    const std::optional<Tensor>& bias,
    const std::optional<Tensor>& input_scale,
    backend::Backend& backend,
    Isa isa = best_isa());

}  // namespace nibble::quant
