#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "nibble/backend/backend.h"
#include "nibble/base/cpu.h"
#include "nibble/model/linear.h"
#include "nibble/quant/core/scheme.h"

namespace nibble::quant {

// The layer that computes y = x W^T from packed int4 or int8 codes on the CPU.
// W is (rows, columns) and never expanded: 4- and 8-bit codes keep their size,
// scales keep the size of spec.weight.scale_dtype.
//
// codes is called for tiles of rows in rising order. bias (rows) is F32, F16
// or BF16. input_scale (1) belongs to inputs of Grain::kTensor and to no other.
//
// Without spec.input, or with floating inputs, activations are kept to 16 bits
// a block of at most 128 columns: results are within 1e-4 of the exact product
// relative to |x| |w|. Inputs of int8 codes give the exact sum of code
// products. A token's results depend neither on the number of threads nor on
// the other tokens of the call.
//
// kUnsupported for a spec that no kernel serves, kCorruptData for codes, zero
// points or scales outside of their range.
//
// isa: a set of instructions that the processor has (cpu_has).
[[nodiscard]] std::unique_ptr<model::Linear> make_integer_linear(
    const LayerSpec& spec,
    std::int64_t rows,
    std::int64_t columns,
    const RowSource& codes,
    const std::optional<Tensor>& bias,
    const std::optional<Tensor>& input_scale,
    backend::Backend& backend,
    Isa isa = best_isa());

}  // namespace nibble::quant
