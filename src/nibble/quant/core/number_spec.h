#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nibble/tensor/dtype.h"

namespace nibble::quant {

// Which elements share a scale.
enum class Grain {
  kTensor,   // all of them
  kChannel,  // one row (output channel) of a weight
  kGroup,    // `group` consecutive columns of a row
  kBlock,    // block_rows x block_columns of a weight
  kToken,    // one row of activations
};

[[nodiscard]] std::string_view grain_name(Grain grain);

// Arithmetic where our best and the field's reference tool differ: kExact
// divides in float32 and chooses codes against the rounded scale; kReference
// writes bit for bit what llm-compressor writes (docs/numerics.md).
// kMeta writes what llama-models writes (docs/formats/meta.md, "Numbers").
enum class Numerics { kExact, kReference, kMeta };

// How real numbers become codes. A value, compared by content.
struct NumberSpec {
  std::string scheme;  // "int4", "int8", "fp8"
  int bits = 8;
  bool floating = false;  // codes are FP8 E4M3, else two's complement integers
  bool symmetric = true;
  Grain grain = Grain::kChannel;
  std::int64_t group = 0;  // columns a scale; kGroup only
  std::int64_t block_rows = 0;
  std::int64_t block_columns = 0;
  // Asymmetric with a real zero instead of a code: value = code * scale +
  // offset (gpt-fast; 4-bit groups).
  bool real_zero = false;
  DType scale_dtype = DType::kBF16;  // scales are rounded to it when chosen
  // Dynamic inputs: magnitudes above it saturate; 0 = no bound.
  float upper_bound = 0;

  friend bool operator==(const NumberSpec&, const NumberSpec&) = default;
};

// A linear layer's weight and, where activations are quantized too, its input.
// input->grain: kToken = dynamic per token; kGroup = dynamic per token and
// group columns; kTensor = one scale that the checkpoint stores (static).
struct LayerSpec {
  NumberSpec weight;
  std::optional<NumberSpec> input;

  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

// For people: "int4 group 64 asymmetric", "fp8 channel, fp8 token inputs".
[[nodiscard]] std::string describe(const LayerSpec& spec);

// Rows and columns of the scales of a (rows, columns) weight.
struct ScaleGrid {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t rows_per_scale = 1;     // rows that share a scale
  std::int64_t columns_per_scale = 1;  // columns that share a scale
};

[[nodiscard]] ScaleGrid scale_grid(const NumberSpec& spec,
                                   std::int64_t rows,
                                   std::int64_t columns);

// Average stored bits a weight: codes, scales in scale_dtype and zero points
// of `bits` bits.
[[nodiscard]] double bits_per_weight(const NumberSpec& spec,
                                     std::int64_t rows,
                                     std::int64_t columns);

}  // namespace nibble::quant
