#include "nibble/load/load_model.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/load/dense_builder.h"
#include "nibble/model/config.h"
#include "nibble/model/family.h"

namespace nibble::load {
namespace {

using container::CheckpointReader;
using container::TensorInfo;
using model::LinearSlot;
using model::NormSlot;

// One loading: first everything that headers tell is checked, then data is
// read.
class Loader {
 public:
  Loader(const CheckpointDirectory& checkpoint,
         std::span<const LayerBuilder* const> builders,
         backend::Backend& backend)
      : checkpoint_(checkpoint),
        reader_(*checkpoint.reader),
        builders_(builders),
        backend_(backend),
        dense_(checkpoint),
        model_(std::make_unique<model::Transformer>(
            model::parse_config(*checkpoint.config), backend)) {}

  std::unique_ptr<model::Transformer> load() {
    check_slots();
    check_leftovers();
    fill_slots();
    return std::move(model_);
  }

 private:
  // The builder from outside that claims the slot, or nullptr for a dense one.
  [[nodiscard]] const LayerBuilder* claimant(const LinearSlot& slot) const {
    const auto found = std::find_if(
        builders_.begin(), builders_.end(), [&](const LayerBuilder* builder) {
          return builder->claims(reader_, slot);
        });
    return found == builders_.end() ? nullptr : *found;
  }

  void use(std::vector<std::string> names) {
    for (std::string& name : names) {
      used_.insert(std::move(name));
    }
  }

  void check_slots() {
    const model::ModelConfig& config = model_->config();
    model_->visit_linears([&](LinearSlot& slot) {
      const LayerBuilder* builder = claimant(slot);
      if (builder == nullptr) {
        check_dense(slot);
        builder = &dense_;
      }
      std::vector<std::string> names = builder->tensors_of(reader_, slot.path);
      if (!slot.has_bias) {
        // A bias that config.json does not announce would be lost silently.
        std::erase(names, slot.path + ".bias");
      }
      use(std::move(names));
    });
    model_->visit_norms([&](NormSlot& slot) {
      dense_.check(reader_, slot, config.hidden);
      use({slot.path + ".weight"});
    });
    check_embedding();
  }

  void check_embedding() {
    const model::EmbeddingSlot& slot = model_->embedding();
    bool claimed = false;
    for (const LayerBuilder* builder : builders_) {
      std::vector<std::string> names = builder->tensors_of(reader_, slot.path);
      claimed = claimed || !names.empty();
      use(std::move(names));
    }
    if (!claimed || reader_.find(slot.path + ".weight") != nullptr) {
      dense_.check(reader_, slot);
      use({slot.path + ".weight"});
    }
  }

  void check_dense(const LinearSlot& slot) const {
    if (slot.path.ends_with("lm_head") && !dense_.claims(reader_, slot)) {
      fail_with_hint(ErrorCode::kNotFound,
                     "a model whose head is its embedding table needs "
                     "\"tie_word_embeddings\": true in config.json",
                     "{}.weight: found no such tensor",
                     slot.path);
    }
    dense_.check(reader_, slot);
  }

  // Whether a tensor may stand in a file though nothing computes with it.
  [[nodiscard]] bool is_idle(const TensorInfo& tensor) const {
    const model::TensorPlace place =
        model::place_of(model::family_of(*checkpoint_.config),
                        *checkpoint_.config,
                        tensor.name,
                        tensor.shape);
    return place.role == model::Role::kVision ||
           place.role == model::Role::kBuffer ||
           // A copy of the table that some writers store.
           (place.role == model::Role::kHead && model_->config().tied_head &&
            place.part == "weight");
  }

  void check_leftovers() const {
    std::vector<std::string_view> unused;
    for (const TensorInfo& tensor : reader_.tensors()) {
      if (used_.find(tensor.name) == used_.end() && !is_idle(tensor)) {
        unused.push_back(tensor.name);
      }
    }
    if (unused.empty()) {
      return;
    }
    fail_with_hint(
        ErrorCode::kCorruptData,
        "config.json and the weights may belong to different models",
        "{}: found a tensor that nothing in a {} of {} layers uses{}",
        printable(unused.front()),
        model_->config().architecture,
        model_->config().layers.size(),
        unused.size() == 1 ? std::string()
                           : fmt::format(" (and {} more)", unused.size() - 1));
  }

  void fill_slots() {
    model_->visit_norms([&](NormSlot& slot) {
      slot.weight = load_vector(reader_, reader_.get(slot.path + ".weight"));
    });
    fill_embedding();
    model_->visit_linears([&](LinearSlot& slot) {
      const LayerBuilder* builder = claimant(slot);
      slot.layer = (builder == nullptr ? dense_ : *builder)
                       .build(reader_, slot, backend_);
    });
  }

  void fill_embedding() {
    model::EmbeddingSlot& slot = model_->embedding();
    for (const LayerBuilder* builder : builders_) {
      slot.layer = builder->build_embedding(reader_, slot, backend_);
      if (slot.layer != nullptr) {
        return;
      }
    }
    slot.layer = dense_.build_embedding(reader_, slot, backend_);
  }

  const CheckpointDirectory& checkpoint_;
  const CheckpointReader& reader_;
  std::span<const LayerBuilder* const> builders_;
  backend::Backend& backend_;
  DenseBuilder dense_;
  std::unique_ptr<model::Transformer> model_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace

std::unique_ptr<model::Transformer> load_model(
    const CheckpointDirectory& checkpoint,
    std::span<const LayerBuilder* const> builders,
    backend::Backend& backend) {
  return Loader(checkpoint, builders, backend).load();
}

}  // namespace nibble::load
