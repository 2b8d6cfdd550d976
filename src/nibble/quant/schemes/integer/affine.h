#pragma once

#include <memory>
#include <optional>
#include <span>

#include "nibble/quant/core/scheme.h"

// 4-bit groups with a real zero, as gpt-fast stores them:
//   value = code * scale + offset, code -8..7, scale and offset BF16.
// offset is the value of code 0, in the middle of the group's range, which
// need not contain zero (docs/formats/gpt-fast.md, "Numbers").
namespace nibble::quant::affine {

// Throws kUnsupported unless spec.real_zero fits: int4, groups, asymmetric.
void check(const LayerSpec& spec, std::int64_t rows, std::int64_t columns);

// A short last group counts as filled up with zeros: gpt-fast pads so.
// kExact takes quotients in float32 against the rounded scale and offset;
// kReference rounds every step to BF16, as gpt-fast does.
[[nodiscard]] Quantized encode(const NumberSpec& spec,
                               ConstTensorView weight,
                               const EncodeOptions& options);

// Scheme::decode_rows.
void decode_rows(const Quantized& quantized,
                 std::int64_t first,
                 std::int64_t count,
                 std::span<float> out);

// y = x W^T as the symmetric layer of the codes plus (sums of x over each
// group) times the offsets.
[[nodiscard]] std::unique_ptr<model::Linear> make_linear(
    const LayerSpec& spec,
    std::int64_t rows,
    std::int64_t columns,
    const RowSource& codes,
    const std::optional<Tensor>& bias,
    backend::Backend& backend);

}  // namespace nibble::quant::affine
