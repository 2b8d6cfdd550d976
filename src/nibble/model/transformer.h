#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nibble/backend/backend.h"
#include "nibble/base/function_ref.h"
#include "nibble/model/config.h"
#include "nibble/model/kv_cache.h"
#include "nibble/model/linear.h"

namespace nibble::model {

// A norm's weight and the name of its tensor in the checkpoint.
struct NormSlot {
  std::string path;  // module name, without ".weight"
  Tensor weight;     // (hidden) float32
};

struct Attention {
  LinearSlot q, k, v, o;
};

struct Mlp {
  LinearSlot gate, up, down;
};

struct Experts {
  LinearSlot router;
  std::vector<Mlp> routed;
  Mlp shared;
};

struct Block {
  NormSlot attention_norm;
  Attention attention;
  NormSlot mlp_norm;
  std::optional<Mlp> mlp;          // dense layer, or
  std::optional<Experts> experts;  // expert layer
};

// A Llama-family decoder with empty slots; load/ fills them through visit_*.
// Computes in float32. forward is thread-safe for different caches. What comes
// out for a token does not depend on how a sequence is cut into calls, as far
// as the layers in the slots keep to that.
class Transformer {
 public:
  // The backend must outlive the model.
  Transformer(ModelConfig config, backend::Backend& backend);

  [[nodiscard]] const ModelConfig& config() const { return config_; }

  [[nodiscard]] backend::Backend& backend() const { return backend_; }

  [[nodiscard]] KvCache make_cache() const;

  // Runs tokens ids that follow cache.length() positions; appends to cache,
  // which keeps its length when an error is thrown. Returns logits (rows,
  // vocabulary) float32: of every token, or of the last alone. Any number of
  // tokens: memory for activations is that of a few hundred.
  // kInvalidArgument: no ids, an id outside the vocabulary, more positions
  // than the model has.
  enum class Logits { kAll, kLast };
  [[nodiscard]] Tensor forward(std::span<const std::int32_t> ids,
                               KvCache& cache,
                               Logits which) const;

  // The one door to the weights: loading and swapping pass here. A tied head
  // is visited with the embedding's path.
  void visit_linears(FunctionRef<void(LinearSlot&)> visit);
  void visit_norms(FunctionRef<void(NormSlot&)> visit);

  [[nodiscard]] EmbeddingSlot& embedding() { return embedding_; }

  // Sum over all slots, in bytes; a table shared by embedding and head counts
  // once.
  [[nodiscard]] std::size_t resident_bytes() const;

 private:
  // Consecutive tokens of one sequence on their way through the blocks, and
  // the memory they need. Several sequences in one forward will be several of
  // these over slices of the same activations: only attend() looks at it.
  struct Pass;

  void run_block(const Block& block,
                 std::size_t layer,
                 TensorView x,
                 Pass& pass) const;
  void attend(const Attention& attention,
              std::size_t layer,
              ConstTensorView x,
              TensorView y,
              Pass& pass) const;
  void run_mlp(const Mlp& mlp,
               ConstTensorView x,
               TensorView y,
               Pass& pass) const;
  void run_experts(const Experts& experts,
                   ConstTensorView x,
                   TensorView y,
                   Pass& pass) const;
  void run_head(TensorView x, TensorView logits) const;
  void check_ids(std::span<const std::int32_t> ids) const;

  ModelConfig config_;
  backend::Backend& backend_;
  std::vector<float> inverse_frequencies_;  // (head_dim / 2)
  EmbeddingSlot embedding_;
  std::vector<Block> blocks_;
  NormSlot final_norm_;
  LinearSlot head_;
};

}  // namespace nibble::model
