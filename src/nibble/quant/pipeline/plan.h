#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/core/format.h"
#include "nibble/quant/recipe/recipe.h"

namespace nibble::quant {

// What becomes of a source tensor.
enum class Fate { kQuantized, kCopied, kSplit, kMerged, kDropped };

[[nodiscard]] std::string_view fate_name(Fate fate);

// One weight matrix of the source, as a rectangle of a source tensor:
// a plain (rows, columns) weight, or one part of one expert of a stack.
struct MatrixSource {
  std::size_t tensor = 0;  // index into reader.tensors()
  std::int64_t rows = 0;   // out
  std::int64_t columns = 0;  // in
  bool transposed = false;  // stored (in, stride), input-major
  std::int64_t offset_elements = 0;  // first element of the matrix
  std::int64_t stride_elements = 0;  // between consecutive stored rows
};

// One linear that is written: quantized (spec) or as a dense expert matrix.
struct PlannedLayer {
  std::string module;
  MatrixSource source;
  std::optional<LayerSpec> spec;
  std::string algorithm;
  std::vector<container::TensorInfo> outputs;  // file = output shard index
};

struct PlannedTensor {
  std::size_t tensor = 0;  // index into reader.tensors()
  Fate fate = Fate::kCopied;
  std::string reason;  // for kCopied of a linear and for kDropped
  std::vector<std::size_t> layers;  // indices into Plan::layers
  std::vector<std::string> outputs;
};

struct QuantizeOptions {
  std::filesystem::path output;
  std::uint64_t shard_bytes = 5'000'000'000;
  Numerics numerics = Numerics::kExact;
  std::uint64_t memory_bytes = 0;  // 0 = half of what is available
  bool overwrite = false;
  std::string format = "compressed_tensors";
};

// Everything that a job will do, known from headers alone. A value: printable
// as JSON, comparable, testable without weights.
struct Plan {
  std::vector<PlannedTensor> tensors;  // one for every source tensor, in order
  std::vector<PlannedLayer> layers;
  std::vector<std::vector<container::TensorInfo>> shards;  // of the output
  std::vector<std::string> shard_names;
  std::uint64_t source_bytes = 0;
  std::uint64_t output_bytes = 0;   // tensor bytes
  double bits_per_weight = 0;       // output bits / source elements
  std::uint64_t tile_rows = 0;      // largest row tile that fits the budget
  std::uint64_t peak_memory_bytes = 0;  // estimate
  std::vector<std::string> notes;   // for people
};

// Plans; reads headers, config and the recipe only. Throws for everything that
// can be known to go wrong.
[[nodiscard]] Plan make_plan(const load::CheckpointDirectory& source,
                             const Recipe& recipe,
                             const QuantizeOptions& options);

[[nodiscard]] nlohmann::json to_json(
    const Plan& plan, const load::CheckpointDirectory& source);

}  // namespace nibble::quant
