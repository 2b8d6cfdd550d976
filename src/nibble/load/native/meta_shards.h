#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/container/checkpoint.h"

namespace nibble::load {

// One model-parallel rank of a checkpoint in Meta's layout, or a gpt-fast file.
struct MetaShard {
  std::shared_ptr<const container::CheckpointReader> weights;
  std::shared_ptr<const container::CheckpointReader> scales;  // or null
};

// consolidated.NN.pth of a directory in rank order, with the scale files that
// belong to them (int4_scales_R.pt or fp8_scales_R.pt, R a plain integer); or
// one file of gpt-fast.
struct MetaShards {
  std::vector<MetaShard> ranks;
  // How weights are packed: "" (they are not), "int4_mixed", "fp8_mixed", or
  // gpt-fast's "gpt-fast".
  std::string mode;
};

// Whether a directory holds consolidated*.pth.
[[nodiscard]] bool is_meta_directory(const std::filesystem::path& directory);

// Opens every shard. kNotFound for a missing rank or scale file; kCorruptData
// when two ranks disagree in names, dtypes or shapes.
[[nodiscard]] MetaShards open_meta_shards(
    const std::filesystem::path& directory);

}  // namespace nibble::load
