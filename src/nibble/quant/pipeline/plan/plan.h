#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/base/ranks/ranks.h"
#include "nibble/container/file_set.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/model/family.h"
#include "nibble/quant/core/format.h"
#include "nibble/quant/pipeline/matrix/read_matrix.h"
#include "nibble/quant/pipeline/plan/code_source.h"
#include "nibble/quant/recipe/recipe.h"

namespace nibble::quant {

// What becomes of a source tensor. kSplit: a stack of experts that is written
// as one matrix an expert. kMerged: one of several parts of an output tensor.
enum class Fate { kQuantized, kCopied, kSplit, kMerged, kDropped };

// "quantized", "copied" ...
[[nodiscard]] std::string_view fate_name(Fate fate);

// One linear that is written from a matrix: quantized, or dense (no spec) when
// it belongs to a stack of which other parts are quantized.
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
  std::string reason;  // why a linear stays dense, or a tensor is dropped
  std::vector<std::size_t> layers;   // indices into Plan::layers
  std::vector<std::string> outputs;  // names, in the order of layers
  // Weights must be finite; masks and unknown values may hold anything.
  bool must_be_finite = false;
};

// What a source's files hold: bytes of tensors, and the weights these stand
// for.
struct SourceSize {
  std::uint64_t bytes = 0;
  std::int64_t parameters = 0;
};

struct QuantizeOptions {
  std::filesystem::path output;
  std::uint64_t shard_bytes = 5'000'000'000;
  Numerics numerics = Numerics::kExact;
  std::uint64_t memory_bytes = 0;  // 0 = half of what is available
  bool overwrite = false;          // replace a checkpoint at output
  std::string format = "compressed_tensors";
  // The processes that do this job together; nullptr = this one alone.
  Ranks* ranks = nullptr;
  // Engines that must take the result (quant/engines): "vllm" ...
  std::vector<std::string> engines;
  std::vector<std::string> notes;  // to stand in the plan and the receipt
  // Set: codes are moved from there, and the recipe decides nothing.
  std::shared_ptr<const CodeSource> codes;
  // Set where the tensors that are read hold codes, or stand for some.
  std::optional<SourceSize> source_size;
  // Called before each step that touches the disk ("reserve", "write",
  // "journal", "rename" ...), from any thread. Tests make steps fail here.
  std::function<void(std::string_view step)> before_step;
};

// Rows at whose multiples QuantizedCheckpoint::unpack may begin.
inline constexpr std::int64_t kUnpackRows = 128;

// Everything that a job will do, known from headers alone. A value: printable
// as JSON, comparable by its hash, testable without weights.
struct Plan {
  // One for every source tensor, in the order of their names.
  std::vector<PlannedTensor> tensors;
  std::vector<PlannedLayer> layers;  // in the order of their source tensors
  // Every linear, quantized or not, as the format declares them.
  std::vector<LayerDecision> decisions;
  std::vector<model::Role> roles;  // of the decisions
  // Files of the output: their tensors, their names and, for torch files, the
  // beginnings of tensor names that stand in the plan only.
  container::FileKind file_kind = container::FileKind::kSafetensors;
  std::vector<std::vector<container::TensorInfo>> shards;
  std::vector<std::string> shard_names;
  std::vector<std::string> shard_prefixes;
  std::string family;
  std::string format;
  bool packed = false;  // copied tensors hold codes already
  Numerics numerics = Numerics::kExact;
  std::string recipe_json;  // as resolved, defaults written out
  std::string config_text;  // config.json of the output; "" for none
  std::string params_text;  // params.json of the output, likewise
  std::vector<std::filesystem::path> side_files;
  std::uint64_t source_bytes = 0;       // tensor bytes
  std::int64_t source_parameters = 0;   // elements
  std::uint64_t output_bytes = 0;       // tensor bytes
  std::uint64_t disk_bytes = 0;         // all that will be written
  double bits_per_weight = 0;           // output bits / source parameters
  std::uint64_t buffer_bytes = 0;       // limit on buffers of tiles
  std::uint64_t peak_memory_bytes = 0;  // estimate
  std::vector<std::string> notes;       // for people
};

// Plans; reads headers, config and the recipe only, and looks at the output's
// place; an empty output is no place, for plans that are only looked at. Throws
// for everything that can be known to go wrong before a weight is read.
[[nodiscard]] Plan make_plan(const load::CheckpointDirectory& source,
                             const Recipe& recipe,
                             const QuantizeOptions& options);

// Rows a tile of a layer, a multiple of tile_unit_rows() or all rows, such
// that `workers` tiles fit into plan.buffer_bytes where that is possible.
// Bytes of the result do not depend on it.
[[nodiscard]] std::int64_t tile_rows(const Plan& plan,
                                     const PlannedLayer& layer,
                                     DType source_dtype,
                                     int workers);
// Least rows that are encoded, packed and measured at a time: a multiple of
// `multiple`, of kUnpackRows and of the spec's blocks, or all rows.
[[nodiscard]] std::int64_t unit_rows(const LayerSpec& spec,
                                     std::int64_t multiple,
                                     std::int64_t rows);
// The same for a planned layer, with the multiple of the plan's format.
[[nodiscard]] std::int64_t tile_unit_rows(const Plan& plan,
                                          const PlannedLayer& layer);
// Memory of one tile of `rows` rows with everything made from it, in bytes.
[[nodiscard]] std::uint64_t tile_cost_bytes(const Plan& plan,
                                            const PlannedLayer& layer,
                                            DType source_dtype,
                                            std::int64_t rows);

// Whether any weight becomes codes.
[[nodiscard]] bool quantizes(const Plan& plan);

// What --dry-run --json prints.
[[nodiscard]] nlohmann::json to_json(const Plan& plan,
                                     const load::CheckpointDirectory& source);

// Digest of everything that decides the output's bytes: this program's
// version, the plan, and size and time of each source file. Memory and
// threads are not part of it. Two runs with equal hashes may continue each
// other's work.
[[nodiscard]] std::string plan_hash(const Plan& plan,
                                    const load::CheckpointDirectory& source);

// Digest of everything that a result holds: plan_hash, and size and time of the
// source's side files. Results with equal keys have equal content.
[[nodiscard]] std::string content_key(const Plan& plan,
                                      const load::CheckpointDirectory& source);

}  // namespace nibble::quant
