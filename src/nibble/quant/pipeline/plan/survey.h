#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/model/family.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {

// One weight matrix that a recipe can decide on: a linear, or an embedding
// table.
struct Module {
  std::string name;
  MatrixSource source;
  model::Role role = model::Role::kOther;
};

// What a checkpoint consists of, by its headers.
struct Survey {
  const model::Family* family = nullptr;
  std::vector<model::TensorPlace> places;  // of reader.tensors()[i]
  // Tensor indices by name, numbers in names compared as numbers: the order of
  // all work, which does not depend on how the source is cut into files.
  std::vector<std::size_t> order;
  std::vector<Module> modules;  // in that order
};

// kCorruptData for stacks whose shape contradicts the config, kUnsupported for
// weights of linears that are no F32, F16 or BF16.
[[nodiscard]] Survey survey(const container::CheckpointReader& reader,
                            const nlohmann::json& config);
// Of the reader of a directory, be it the ranks of a native layout: their
// modules are matrices of a rank, stacked experts one beside the other.
[[nodiscard]] Survey survey(const load::CheckpointDirectory& source);

// Throws kUnsupported unless a weight is F32, F16 or BF16.
void refuse_unless_weight_dtype(const container::TensorInfo& tensor);

// Whether "layers.2.x" comes before "layers.10.x" and so on.
[[nodiscard]] bool natural_less(std::string_view a, std::string_view b);

// Whether a tensor is a stack of experts.
[[nodiscard]] bool is_stack(const model::TensorPlace& place);

// Compares names and shapes with the model that config.json describes:
// kNotFound for a missing tensor, kCorruptData for a wrong shape or a tensor
// that the model has no place for. Families whose model is not known here are
// not checked; returns a note that says so, or "".
[[nodiscard]] std::string check_against_config(
    const container::CheckpointReader& reader,
    const nlohmann::json& config,
    const Survey& survey);

}  // namespace nibble::quant
