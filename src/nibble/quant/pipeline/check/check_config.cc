#include <map>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/error.h"
#include "nibble/model/config.h"
#include "nibble/model/transformer.h"
#include "nibble/quant/pipeline/plan/survey.h"

namespace nibble::quant {
namespace {

// The tensors that a model needs, ticked off as they are found.
class Needed {
 public:
  Needed(const container::CheckpointReader& reader, const Survey& survey)
      : reader_(reader) {
    for (const Module& module : survey.modules) {
      modules_.emplace(module.name, &module.source);
    }
  }

  void linear(const model::LinearSlot& slot) {
    const auto found = modules_.find(slot.path);
    if (found == modules_.end()) {
      missing(slot.path + ".weight", {slot.out, slot.in});
    }
    const MatrixSource& matrix = *found->second;
    same_shape(slot.path + ".weight",
               {matrix.rows, matrix.columns},
               {slot.out, slot.in});
    used_.insert(matrix.tensor);
    if (slot.has_bias) {
      tensor(slot.path + ".bias", {slot.out});
    }
  }

  void tensor(const std::string& name, const Shape& shape) {
    const container::TensorInfo* found = reader_.find(name);
    if (found == nullptr) {
      missing(name, shape);
    }
    same_shape(name, found->shape, shape);
    used_.insert(static_cast<std::size_t>(found - reader_.tensors().data()));
  }

  [[nodiscard]] bool used(std::size_t tensor) const {
    return used_.contains(tensor);
  }

 private:
  [[noreturn]] static void missing(const std::string& name,
                                   const Shape& shape) {
    fail_with_hint(ErrorCode::kNotFound,
                   "download the checkpoint again, or correct config.json",
                   "tensor {}: found none, expected shape {} by config.json",
                   name,
                   to_string(shape));
  }

  static void same_shape(const std::string& name,
                         const Shape& found,
                         const Shape& expected) {
    NIBBLE_CHECK(found == expected,
                 kCorruptData,
                 "tensor {}: found shape {}, expected {} by config.json",
                 name,
                 to_string(found),
                 to_string(expected));
  }

  const container::CheckpointReader& reader_;
  std::map<std::string_view, const MatrixSource*> modules_;
  std::set<std::size_t> used_;
};

// Tensors that may be there although the model does not read them.
bool may_be_spare(const model::TensorPlace& place, bool tied_head) {
  return place.role == model::Role::kVision ||
         place.role == model::Role::kBuffer ||
         (place.role == model::Role::kHead && tied_head);
}

}  // namespace

std::string check_against_config(const container::CheckpointReader& reader,
                                 const nlohmann::json& given,
                                 const Survey& survey) {
  if (!survey.family->runnable) {
    return fmt::format(
        "nibble does not know the structure of {} models: tensors were not "
        "compared with config.json",
        survey.family->name);
  }
  model::ModelConfig config;
  try {
    config = model::parse_config(given);
  } catch (const Error& error) {
    // A feature that only running the model needs does not stop rewriting it.
    if (error.code() != ErrorCode::kUnsupported) {
      throw;
    }
    return fmt::format(
        "nibble cannot run this model ({}): tensors were not "
        "compared with config.json",
        error.what());
  }
  const bool tied_head = config.tied_head;
  model::Transformer model(std::move(config), backend::cpu_backend());

  Needed needed(reader, survey);
  const model::EmbeddingSlot& embedding = model.embedding();
  needed.tensor(embedding.path + ".weight", {embedding.rows, embedding.hidden});
  model.visit_linears([&](model::LinearSlot& slot) {
    if (slot.path != embedding.path) {  // a tied head
      needed.linear(slot);
    }
  });
  model.visit_norms([&](model::NormSlot& slot) {
    needed.tensor(slot.path + ".weight", {model.config().hidden});
  });

  const auto tensors = reader.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (needed.used(i) || may_be_spare(survey.places[i], tied_head)) {
      continue;
    }
    fail_with_hint(
        ErrorCode::kCorruptData,
        "correct config.json (number of layers, biases), or remove the tensor",
        "tensor {}: found a tensor that has no place in the model of "
        "config.json ({})",
        printable(tensors[i].name),
        model.config().architecture);
  }
  return {};
}

}  // namespace nibble::quant
