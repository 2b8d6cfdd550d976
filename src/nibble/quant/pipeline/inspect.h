#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/tensor/view.h"

namespace nibble::quant {

// One tensor of a dense kind, or one quantized module.
struct InspectedLayer {
  std::string name;         // of the module, or of the tensor when none owns it
  Shape shape;              // of the weight: (out, in), stacks as stored
  std::string role;         // "attention", "expert" ...
  std::string scheme;       // "int4 group 128", or "" when dense
  std::string dtype;        // of codes or elements, as stored
  std::uint64_t bytes = 0;  // with scales, zero points and shapes
};

struct InspectReport {
  std::string family;        // "" for a single file without config.json
  std::string architecture;  // as config.json names it
  std::string format;        // "dense", "compressed-tensors pack-quantized" ...
  std::int64_t parameters = 0;
  // Parameters that one token passes through; of experts only those that are
  // chosen for it. 0 when that is not known.
  std::int64_t active_parameters = 0;
  std::uint64_t bytes = 0;  // of tensors
  double bits_per_weight = 0;
  std::vector<std::string> files;
  std::vector<InspectedLayer> layers;  // in the order of names
};

// What a directory or a single safetensors file holds; reads headers only.
// Throws what opening it throws.
[[nodiscard]] InspectReport inspect(const std::filesystem::path& path);
[[nodiscard]] InspectReport inspect(const load::CheckpointDirectory& directory);

// The document of `nibble inspect --json`.
[[nodiscard]] nlohmann::json to_json(const InspectReport& report);

}  // namespace nibble::quant
