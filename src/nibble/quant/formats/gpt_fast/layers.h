#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "nibble/container/checkpoint.h"
#include "nibble/model/config.h"
#include "nibble/quant/core/number_spec.h"
#include "nibble/quant/formats/gpt_fast/int4_pack.h"

namespace nibble::quant::gpt_fast {

// A linear of the file; q, k and v may share one.
struct PackedTensor {
  std::string native;  // "layers.0.attention.wqkv"
  bool int8 = false;   // (out, in) I8 with scales (out) BF16
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // of the model
  CodeLayout codes;          // of int4
  std::int64_t group = 0;
  LayerSpec spec;
  const container::TensorInfo* weight = nullptr;
  const container::TensorInfo* scales = nullptr;
};

// A linear of the model: rows [first, first + rows) of a packed tensor.
struct PackedLayer {
  std::string native;
  std::int64_t first = 0;
  std::int64_t rows = 0;
  // Rows of each head are in Meta's order there, half a head apart here.
  bool rotary = false;
};

struct PackedLayers {
  std::map<std::string, PackedTensor, std::less<>> tensors;  // by native name
  std::map<std::string, PackedLayer, std::less<>> layers;    // by module
  std::int64_t head_dim = 0;
};

// The packed linears of a view (load/native/meta_view.h) of a gpt-fast file.
// layout names what a file cannot tell, the order of two-dimensional codes
// ("bytes", "cpu-avx512", "cpu-avx2") or of CPU bytes in the shape of tiles
// ("cpu-..."), or is empty. kCorruptData for shapes that fit nothing;
// kUnsupported, with the type found and the one expected, for codes of another
// type; kInvalidArgument for a layout where none is to be told, or none where
// one is.
[[nodiscard]] PackedLayers find_packed_layers(
    const model::ModelConfig& config,
    const container::CheckpointReader& reader,
    std::string_view layout);

}  // namespace nibble::quant::gpt_fast
