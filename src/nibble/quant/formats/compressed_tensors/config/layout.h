#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "nibble/container/checkpoint.h"
#include "nibble/quant/core/number_spec.h"

namespace nibble::quant::compressed_tensors {

// Where a module's codes lie.
enum class Storage {
  kPacked,  // weight_packed: words of 32 bits (pack-quantized)
  kPlain,   // weight: one code a byte (the other formats)
};

// The format's word for a layer: "pack-quantized" for integer weights alone,
// "int-quantized" with activations, "float-quantized" for FP8 with
// activations, "naive-quantized" for FP8 weights alone.
[[nodiscard]] std::string_view format_word(const LayerSpec& spec);

// How a format's word stores codes; spec decides nothing here.
[[nodiscard]] Storage storage_of(std::string_view format);

// One tensor that a quantized module has besides its bias.
struct Part {
  std::string_view suffix;  // "weight_scale"
  DType dtype = DType::kF32;
  Shape shape;
  // Shapes that some writers use for the same content, read but never written.
  std::vector<Shape> also;
};

// The tensors of a (rows, columns) module, in the order in which they are
// written. Scales have spec.weight.scale_dtype.
[[nodiscard]] std::vector<Part> parts_of(const LayerSpec& spec,
                                         Storage storage,
                                         std::int64_t rows,
                                         std::int64_t columns);

// Throws kUnsupported unless this format holds such a layer.
void check_layer(const LayerSpec& spec,
                 std::int64_t rows,
                 std::int64_t columns);

}  // namespace nibble::quant::compressed_tensors
