#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/container/checkpoint.h"
#include "nibble/model/config.h"
#include "nibble/quant/core/number_spec.h"

namespace nibble::quant::meta {

// How Meta's files pack a matrix of one rank.
enum class Packing {
  kInt4,  // two's complement nibbles, two inputs a byte, the first one low
  kFp8,   // E4M3
};

// A packed tensor of a checkpoint: one matrix, or one of each expert, cut over
// all ranks the same way.
struct PackedTensor {
  std::string native;  // name inside a rank
  Packing packing = Packing::kInt4;
  // Routed experts: (experts * in, out) of a rank, input-major; else
  // (out, in).
  bool stacked = false;
  // Whether ranks hold parts of the inputs (down projections) or of the
  // outputs.
  bool cut_inputs = false;
  std::int64_t experts = 1;
  std::int64_t rows = 0;     // outputs of the whole matrix
  std::int64_t columns = 0;  // inputs of the whole matrix
  std::int64_t rank_rows = 0;
  std::int64_t rank_columns = 0;
  std::int64_t groups = 1;  // scales of an output of one rank and expert
  std::vector<const container::TensorInfo*> weights;  // by rank
  std::vector<const container::TensorInfo*> scales;   // by rank
};

// One linear of the model: an expert of a packed tensor.
struct PackedLayer {
  const PackedTensor* tensor = nullptr;
  std::int64_t expert = 0;
  LayerSpec spec;
};

// One matrix as one rank holds it.
struct StoredLayer {
  const PackedTensor* tensor = nullptr;
  std::size_t rank = 0;
  std::int64_t expert = 0;
  LayerSpec spec;
};

// Everything packed in an opened checkpoint, by Hugging Face module name, and
// by the name that ShardModule gives to the matrix of a rank.
struct PackedLayers {
  std::vector<PackedTensor> tensors;
  std::map<std::string, PackedLayer, std::less<>> layers;
  std::map<std::string, StoredLayer, std::less<>> stored;
};

// Whether a tensor of a rank can be packed at all.
[[nodiscard]] bool is_packable(std::string_view native);

// The key of a packed tensor's scales in the scale file of a rank, as Meta's
// tools spell it. kUnsupported for a tensor that they do not pack.
[[nodiscard]] std::string scale_key(std::string_view native,
                                    std::int64_t rank,
                                    Packing packing);

// Finds the packed tensors of a view (load/native/meta_view.h) and their scales
// under every known spelling, and checks their shapes against each other. How a
// tensor is packed follows from its shape, as docs/formats/meta.md explains.
// kCorruptData for shapes that fit nothing, kNotFound for missing scales.
[[nodiscard]] PackedLayers find_packed_layers(
    const model::ModelConfig& config,
    const container::CheckpointReader& reader,
    std::size_t ranks);

}  // namespace nibble::quant::meta
