#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/load/layer_builder.h"
#include "nibble/model/transformer.h"

namespace nibble::load {

// Makes layers from weights as they are stored (F32, F16 or BF16): mapped,
// never a second copy, except expert matrices that are cut out of a stack and
// turned to (out, in), and small float32 biases. The checkpoint must outlive
// it; the layers do not need it.
class DenseBuilder final : public LayerBuilder {
 public:
  // kCorruptData when a stacked tensor contradicts the config.
  explicit DenseBuilder(const CheckpointDirectory& checkpoint);

  // Whether the checkpoint has a dense weight for the slot.
  [[nodiscard]] bool claims(const container::CheckpointReader& reader,
                            const model::LinearSlot& slot) const override;
  // Throws unless build will find what it needs, looking at headers alone:
  // kNotFound names a missing tensor, kCorruptData a shape that is not the
  // slot's, kUnsupported another type of element.
  void check(const container::CheckpointReader& reader,
             const model::LinearSlot& slot) const;
  void check(const container::CheckpointReader& reader,
             const model::EmbeddingSlot& slot) const;
  void check(const container::CheckpointReader& reader,
             const model::NormSlot& slot,
             std::int64_t width) const;

  // After check: the slot's weight (out, in) as it is stored, cut out of its
  // stack where it stands in one.
  [[nodiscard]] Tensor load_weight(const container::CheckpointReader& reader,
                                   const model::LinearSlot& slot) const;

  // After check. kCorruptData for a bias that is not finite.
  [[nodiscard]] std::unique_ptr<model::Linear> build(
      const container::CheckpointReader& reader,
      const model::LinearSlot& slot,
      backend::Backend& backend) const override;
  [[nodiscard]] std::vector<std::string> tensors_of(
      const container::CheckpointReader& reader,
      const std::string& module) const override;
  [[nodiscard]] std::unique_ptr<model::Embedding> build_embedding(
      const container::CheckpointReader& reader,
      const model::EmbeddingSlot& slot,
      backend::Backend& backend) const override;

 private:
  // A matrix inside a stacked tensor (experts, in, columns).
  struct StackedMatrix {
    const container::TensorInfo* tensor = nullptr;
    std::int64_t expert = 0;
    std::int64_t first_column = 0;
    std::int64_t columns = 0;  // = out
  };

  // The matrix of module "STACK.<expert>.<projection>", if it is stacked.
  [[nodiscard]] std::optional<StackedMatrix> find_stacked(
      std::string_view module) const;

  [[nodiscard]] static Tensor cut(const container::CheckpointReader& reader,
                                  const StackedMatrix& matrix);

  // By stack module, then by projection, with expert 0.
  std::map<std::string, std::map<std::string, StackedMatrix>, std::less<>>
      stacks_;
};

// A vector of weights (norm, bias) as float32; kCorruptData names the first
// value that is not finite.
[[nodiscard]] Tensor load_vector(const container::CheckpointReader& reader,
                                 const container::TensorInfo& tensor);

}  // namespace nibble::load
