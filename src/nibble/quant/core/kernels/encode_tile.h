#pragma once

#include <cstdint>
#include <span>

#include "nibble/base/cpu.h"
#include "nibble/quant/core/kernels/code_runs.h"
#include "nibble/quant/core/scheme.h"

namespace nibble::quant {

// Functions of a scheme that fill the codes of runs whose scales are chosen.
struct CodeFunctions {
  CodeFn portable = nullptr;  // any scale
  // Same bytes for scales within the fast bounds (code_runs.h); may be null.
  CodeFn fast = nullptr;
};

// Those for weights of a dtype and scales of a dtype, out of the portable
// kernels of a scheme and its fast ones (all null where there are none).
// kUnsupported for weights other than F32, F16 and BF16.
[[nodiscard]] CodeFunctions pick_functions(const CodeKernels& portable,
                                           const CodeKernels& fast,
                                           DType dtype,
                                           DType scale_dtype,
                                           Numerics numerics);

// Scheme::encode of every scheme whose scale follows from a range alone: walks
// the scale grid in strips that stay in the first-level cache, takes ranges,
// chooses scales (scale_rule.h) and has the codes filled. One thread.
// kInternal unless the weight is (rows, columns) and finite; kUnsupported
// unless it is F32, F16 or BF16. For Grain::kTensor the range in options must
// cover the weight; without one the weight is taken to be the whole tensor.
[[nodiscard]] Quantized encode_tile(const NumberSpec& spec,
                                    ConstTensorView weight,
                                    const EncodeOptions& options,
                                    const CodeFunctions& functions,
                                    Isa isa);

// Fills out[i] = (value of codes[i] - zero) * scale.
using ValueFn = void (*)(const std::uint8_t* codes,
                         std::size_t count,
                         float zero,
                         float scale,
                         float* out);

// Scheme::decode_rows over the scale grid, with `order` where there is one.
// kInternal when sizes or types contradict each other.
void decode_grid_rows(const Quantized& quantized,
                      std::int64_t first,
                      std::int64_t count,
                      std::span<float> out,
                      ValueFn values);

}  // namespace nibble::quant
