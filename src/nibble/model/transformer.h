#pragma once

#include <cstdint>
#include <memory>
#include <span>
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
  std::optional<Mlp> shared;
};

struct Block {
  NormSlot attention_norm;
  Attention attention;
  NormSlot mlp_norm;
  std::optional<Mlp> mlp;          // dense layer, or
  std::optional<Experts> experts;  // expert layer
};

// A Llama-family decoder with empty slots; load/ fills them through visit_*.
// Computes in float32. forward is thread-safe for different caches.
class Transformer {
 public:
  Transformer(ModelConfig config, backend::Backend& backend);

  [[nodiscard]] const ModelConfig& config() const { return config_; }

  [[nodiscard]] backend::Backend& backend() const { return backend_; }

  [[nodiscard]] KvCache make_cache() const;

  // Runs tokens ids that follow cache.length() positions; appends to cache.
  // Returns logits (rows, vocabulary) float32: of every token, or of the last
  // alone.
  enum class Logits { kAll, kLast };
  [[nodiscard]] Tensor forward(std::span<const std::int32_t> ids,
                               KvCache& cache,
                               Logits which) const;

  // The one door to the weights: loading and swapping pass here. A tied head
  // is visited as head() with the embedding's path.
  void visit_linears(FunctionRef<void(LinearSlot&)> visit);
  void visit_norms(FunctionRef<void(NormSlot&)> visit);

  [[nodiscard]] EmbeddingSlot& embedding() { return embedding_; }

  // Sum over all slots, in bytes.
  [[nodiscard]] std::size_t resident_bytes() const;

 private:
  void run_block(const Block& block,
                 std::size_t index,
                 TensorView hidden,
                 std::span<const std::int32_t> positions,
                 KvCache& cache) const;

  ModelConfig config_;
  backend::Backend& backend_;
  std::vector<float> inverse_frequencies_;
  EmbeddingSlot embedding_;
  std::vector<Block> blocks_;
  NormSlot final_norm_;
  LinearSlot head_;
};

}  // namespace nibble::model
