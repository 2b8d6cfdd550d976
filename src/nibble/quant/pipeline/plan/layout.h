#pragma once

#include <cstdint>

#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {

// Distributes the outputs of plan.layers and of copied tensors over files, in
// the order of the source: safetensors files of at most shard_bytes tensor
// bytes (one larger tensor has a file of its own), or the torch files that
// plan.shard_prefixes and shard_names name already, by the longest beginning
// that fits a tensor's name. Fills shards, shard_names, TensorInfo::file,
// output_bytes and bits_per_weight. kCorruptData when two outputs would have
// one name.
void lay_out(Plan& plan,
             const container::CheckpointReader& source,
             std::uint64_t shard_bytes);

// The files as the writer wants them.
[[nodiscard]] std::vector<container::OutputFile> files_of(const Plan& plan);

}  // namespace nibble::quant
