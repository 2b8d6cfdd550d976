#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "nibble/container/checkpoint.h"
#include "nibble/quant/core/number_spec.h"
#include "nibble/quant/formats/compressed_tensors/config/declaration.h"
#include "nibble/quant/formats/compressed_tensors/config/layout.h"

namespace nibble::quant::compressed_tensors {

// A quantized module of an opened checkpoint, everything checked. Tensors
// belong to the reader; absent ones are nullptr.
struct Module {
  LayerSpec spec;
  Storage storage = Storage::kPlain;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const container::TensorInfo* codes = nullptr;  // weight or weight_packed
  const container::TensorInfo* scales = nullptr;
  const container::TensorInfo* zeros = nullptr;
  const container::TensorInfo* shape = nullptr;
  const container::TensorInfo* input_scale = nullptr;
};

using Modules = std::map<std::string, Module, std::less<>>;

// The quantized modules that the tensors and the declaration agree on.
// kCorruptData where they do not: a declared module that is dense, a quantized
// one that is ignored or that no target fits, a tensor that is missing, too
// many, of another dtype or shape.
[[nodiscard]] Modules find_modules(const Declaration& declaration,
                                   const container::CheckpointReader& reader);

}  // namespace nibble::quant::compressed_tensors
