#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/tensor/view.h"

namespace nibble::model {

// What a tensor of a checkpoint is for.
enum class Role {
  kEmbedding,
  kNorm,
  kAttention,  // q, k, v, o projections
  kMlp,        // gate, up, down of a dense layer
  kExpert,     // of a routed expert
  kSharedExpert,
  kRouter,
  kHead,
  kVision,  // vision tower and projector of a multimodal wrapper
  kBuffer,  // derived values that no loader needs (inv_freq)
  kOther,
};

[[nodiscard]] std::string_view role_name(Role role);

// What stands behind the last dot of a module's name; the whole name if none.
[[nodiscard]] std::string_view last_part(std::string_view module);

// One matrix inside a stacked expert tensor (experts, in, n * out): columns
// [first_column, first_column + columns) of slice e, transposed, are the
// (out, in) weight of module "<stack>.<e>.<projection>".
struct StackedPart {
  std::string projection;  // "gate_proj"
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
};

// Where a tensor stands in its family's structure.
struct TensorPlace {
  Role role = Role::kOther;
  int layer = -1;      // decoder layer, or -1
  std::string module;  // name of the module that owns it: without ".weight"
  // "weight", "bias", whatever else follows the last dot, or "" for stacked
  // tensors.
  std::string part;
  bool linear = false;  // weight of a linear: (out, in), or stacked
  // Not empty: the tensor is (experts, in, sum of columns), input-major.
  std::vector<StackedPart> stacked;
  std::string stack_module;  // "model.layers.3.feed_forward.experts"
};

// A name of a family's modules, with # for each number. It stands after the
// prefix of multimodal wrappers.
struct NameRule {
  std::string_view pattern;  // "model.layers.#.self_attn.q_proj"
  Role role = Role::kOther;
  bool linear = false;
};

// A tensor that holds one matrix of every expert: (experts, in, parts * width),
// input-major. Sizes are looked up in the config under these keys, with the
// class's value when absent.
struct StackRule {
  std::string_view pattern;  // of the whole tensor name
  std::span<const std::string_view> projections;
  std::string_view in_key;
  std::int64_t in_absent = 0;
  std::string_view width_key;
  std::int64_t width_absent = 0;
  std::string_view experts_key;
  std::int64_t experts_absent = 0;
};

// What differs between families for whoever reads or rewrites checkpoints:
// data, not classes.
struct Family {
  std::string_view name;  // "llama", "llama4"
  std::span<const std::string_view> architectures;
  // Roles that rewriting leaves as they are unless told otherwise.
  std::span<const Role> keep_dense;
  // Linears that share one input, by the last part of their names; engines
  // fuse each set, so its members must be treated alike.
  std::span<const std::span<const std::string_view>> fused;
  // Whether this program can run it.
  bool runnable = true;
  // Names of its modules; empty for the generic family, whose tensors are
  // recognised by common habits of naming.
  std::span<const NameRule> names;
  std::span<const StackRule> stacks;
};

// The family of config.json's architectures[0], or the generic one ("plain":
// every two-dimensional *.weight is a linear, nothing is known to be stacked)
// for an architecture not in the table.
[[nodiscard]] const Family& family_of(const nlohmann::json& config);

[[nodiscard]] std::span<const Family> families();

// The place of a tensor by its name and shape. Never throws for unknown names
// (kOther); kCorruptData when a stacked tensor's shape contradicts the config
// (hidden and intermediate sizes swapped, wrong number of experts).
[[nodiscard]] TensorPlace place_of(const Family& family,
                                   const nlohmann::json& config,
                                   std::string_view tensor_name,
                                   const Shape& shape);

}  // namespace nibble::model
