#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nibble/tensor/dtype.h"

namespace nibble::container {

// A tensor as a pickle describes it: a strided window of a storage.
struct PickledTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::string storage;              // key of the zip member data/<storage>
  std::uint64_t storage_bytes = 0;  // as declared
  std::int64_t offset = 0;          // elements
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> stride;  // elements
};

// What a checkpoint's data.pkl holds.
struct PickledCheckpoint {
  std::vector<PickledTensor> tensors;  // in the order of the dictionary
  std::vector<std::string> ignored;    // names of entries that are no tensors
};

// Interprets data.pkl (pickle protocol 2 as torch.save writes it) without
// executing anything: only the opcodes and globals listed in
// docs/formats/torch.md are known; the first other one is kUnsupported, by name
// and byte position. Damaged data is kCorruptData. The top object is a
// dictionary of names, or holds one under the key "model".
[[nodiscard]] PickledCheckpoint read_pickle(std::span<const std::byte> bytes);

// The pickle of an ordered dictionary of contiguous tensors, one storage each,
// that torch.load reads with weights_only: storage keys are "0", "1", ...
[[nodiscard]] std::string write_pickle(std::span<const PickledTensor> tensors);

}  // namespace nibble::container
