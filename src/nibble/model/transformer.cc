#include "nibble/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "nibble/base/error.h"
#include "nibble/model/rope.h"
#include "nibble/model/routing.h"

namespace nibble::model {
namespace {

// Tokens that pass the blocks together. More would not make the products
// faster, and their activations no longer fit the caches.
constexpr std::int64_t kPassTokens = 512;

// The first rows * columns elements of a tensor as a matrix.
TensorView matrix(Tensor& tensor, std::int64_t rows, std::int64_t columns) {
  NIBBLE_ASSERT(rows * columns <= tensor.shape().elements());
  return {tensor.view().data(), tensor.dtype(), {rows, columns}};
}

// (tokens, heads * head_dim) as (tokens, heads, head_dim).
TensorView as_heads(TensorView x, std::int64_t head_dim) {
  return {x.data(), x.dtype(), {x.dim(0), x.dim(1) / head_dim, head_dim}};
}

// (tokens, heads, head_dim) as (tokens, heads * head_dim).
TensorView as_rows(TensorView x) {
  return {x.data(), x.dtype(), {x.dim(0), x.dim(1) * x.dim(2)}};
}

LinearSlot slot(std::string path,
                std::int64_t in,
                std::int64_t out,
                bool has_bias = false) {
  return {std::move(path), in, out, has_bias, nullptr};
}

Attention make_attention(const ModelConfig& config, const std::string& path) {
  const std::int64_t q = config.heads * config.head_dim;
  const std::int64_t kv = config.kv_heads * config.head_dim;
  const bool bias = config.attention_bias;
  return {slot(path + ".q_proj", config.hidden, q, bias),
          slot(path + ".k_proj", config.hidden, kv, bias),
          slot(path + ".v_proj", config.hidden, kv, bias),
          slot(path + ".o_proj", q, config.hidden, bias)};
}

Mlp make_mlp(const ModelConfig& config,
             const std::string& path,
             std::int64_t width) {
  const bool bias = config.mlp_bias;
  return {slot(path + ".gate_proj", config.hidden, width, bias),
          slot(path + ".up_proj", config.hidden, width, bias),
          slot(path + ".down_proj", width, config.hidden, bias)};
}

Experts make_experts(const ModelConfig& config, const std::string& path) {
  Experts experts;
  experts.router = slot(path + ".router", config.hidden, config.experts);
  experts.shared =
      make_mlp(config, path + ".shared_expert", config.expert_intermediate);
  for (std::int64_t e = 0; e < config.experts; ++e) {
    experts.routed.push_back(make_mlp(config,
                                      fmt::format("{}.experts.{}", path, e),
                                      config.expert_intermediate));
  }
  return experts;
}

Block make_block(const ModelConfig& config, std::size_t layer) {
  const std::string path =
      fmt::format("{}model.layers.{}", config.name_prefix, layer);
  const std::string mlp = path + "." + config.mlp_module;
  Block block;
  block.attention_norm.path = path + ".input_layernorm";
  block.attention = make_attention(config, path + ".self_attn");
  block.mlp_norm.path = path + ".post_attention_layernorm";
  if (config.layers[layer].experts) {
    block.experts = make_experts(config, mlp);
  } else {
    block.mlp = make_mlp(config, mlp, config.layers[layer].intermediate);
  }
  return block;
}

// Largest width of any MLP.
std::int64_t widest(const ModelConfig& config) {
  std::int64_t width = 1;
  for (const LayerConfig& layer : config.layers) {
    width = std::max(
        width, layer.experts ? config.expert_intermediate : layer.intermediate);
  }
  return width;
}

// Llama 4 sharpens queries of layers without rope as positions grow:
// 1 + scale * ln(1 + floor((position + 1) / floor_scale)).
std::vector<float> temperatures(const ModelConfig& config,
                                std::span<const std::int32_t> positions) {
  std::vector<float> factors;
  for (const std::int32_t position : positions) {
    const double floors =
        std::floor((position + 1.0) / config.attention_floor_scale);
    factors.push_back(
        static_cast<float>(1 + config.attention_scale * std::log1p(floors)));
  }
  return factors;
}

std::vector<std::int32_t> counting_from(std::int64_t first,
                                        std::int64_t count) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), static_cast<std::int32_t>(first));
  return values;
}

// Every linear of the blocks, in the order of computation; constness follows
// that of blocks.
template <typename Blocks, typename Visit>
void each_linear(Blocks& blocks, Visit&& visit) {
  const auto visit_mlp = [&](auto& mlp) {
    visit(mlp.gate);
    visit(mlp.up);
    visit(mlp.down);
  };
  for (auto& block : blocks) {
    visit(block.attention.q);
    visit(block.attention.k);
    visit(block.attention.v);
    visit(block.attention.o);
    if (block.mlp) {
      visit_mlp(*block.mlp);
    }
    if (block.experts) {
      visit(block.experts->router);
      for (auto& mlp : block.experts->routed) {
        visit_mlp(mlp);
      }
      visit_mlp(block.experts->shared);
    }
  }
}

}  // namespace

struct Transformer::Pass {
  Pass(const ModelConfig& config,
       backend::Backend& backend,
       KvCache& kv_cache,
       std::int64_t tokens)
      : cache(kv_cache) {
    const auto memory = [&](std::int64_t width) {
      return backend.allocate(DType::kF32, {tokens, width});
    };
    normed = memory(config.hidden);
    out = memory(config.hidden);
    q = memory(config.heads * config.head_dim);
    attended = memory(config.heads * config.head_dim);
    gate = memory(widest(config));
    up = memory(widest(config));
    if (config.experts > 0) {
      routed_in = memory(config.hidden);
      routed_out = memory(config.hidden);
      router = memory(config.experts);
    }
  }

  KvCache& cache;
  std::vector<std::int32_t> positions;  // (tokens), consecutive
  Tensor normed, out;                   // (tokens, hidden)
  Tensor q, attended;                   // (tokens, heads * head_dim)
  Tensor gate, up;                      // (tokens, widest MLP)
  Tensor routed_in, routed_out;         // (tokens, hidden)
  Tensor router;                        // (tokens, experts)
};

Transformer::Transformer(ModelConfig config, backend::Backend& backend)
    : config_(std::move(config)),
      backend_(backend),
      inverse_frequencies_(rope_frequencies(config_)) {
  const std::string& prefix = config_.name_prefix;
  embedding_ = {prefix + "model.embed_tokens",
                config_.vocabulary,
                config_.hidden,
                nullptr};
  for (std::size_t i = 0; i < config_.layers.size(); ++i) {
    blocks_.push_back(make_block(config_, i));
  }
  final_norm_.path = prefix + "model.norm";
  head_ = slot(config_.tied_head ? embedding_.path : prefix + "lm_head",
               config_.hidden,
               config_.vocabulary);
}

KvCache Transformer::make_cache() const {
  return {config_, backend_};
}

Tensor Transformer::forward(std::span<const std::int32_t> ids,
                            KvCache& cache,
                            Logits which) const {
  check_ids(ids);
  const auto count = static_cast<std::int64_t>(ids.size());
  cache.reserve(count);
  const std::int64_t rows = which == Logits::kAll ? count : 1;
  Tensor logits = backend_.allocate(DType::kF32, {rows, config_.vocabulary});
  const std::int64_t most = std::min(count, kPassTokens);
  Pass pass(config_, backend_, cache, most);
  Tensor hidden = backend_.allocate(DType::kF32, {most, config_.hidden});
  for (std::int64_t first = 0; first < count; first += kPassTokens) {
    const std::int64_t tokens = std::min(kPassTokens, count - first);
    pass.positions = counting_from(cache.length() + first, tokens);
    const TensorView x = hidden.view().rows(0, tokens);  // (tokens, hidden)
    embedding_.layer->forward(ids.subspan(static_cast<std::size_t>(first),
                                          static_cast<std::size_t>(tokens)),
                              x,
                              backend_.stream());
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      run_block(blocks_[i], i, x, pass);
    }
    if (which == Logits::kAll) {
      run_head(x, logits.view().rows(first, tokens));
    } else if (first + tokens == count) {
      run_head(x.rows(tokens - 1, 1), logits.view());
    }
  }
  cache.advance(count);
  return logits;
}

void Transformer::run_block(const Block& block,
                            std::size_t layer,
                            TensorView x,
                            Pass& pass) const {
  backend::Stream& stream = backend_.stream();
  const TensorView normed = matrix(pass.normed, x.dim(0), config_.hidden);
  const TensorView out = matrix(pass.out, x.dim(0), config_.hidden);

  const ConstTensorView attention_norm = block.attention_norm.weight.view();
  backend_.rms_norm(x, attention_norm, config_.rms_epsilon, normed, stream);
  attend(block.attention, layer, normed, out, pass);
  backend_.add(x, out, stream);

  const ConstTensorView mlp_norm = block.mlp_norm.weight.view();
  backend_.rms_norm(x, mlp_norm, config_.rms_epsilon, normed, stream);
  if (block.experts) {
    run_experts(*block.experts, normed, out, pass);
  } else {
    run_mlp(*block.mlp, normed, out, pass);
  }
  backend_.add(x, out, stream);
}

void Transformer::attend(const Attention& attention,
                         std::size_t layer,
                         ConstTensorView x,
                         TensorView y,
                         Pass& pass) const {
  backend::Stream& stream = backend_.stream();
  const LayerConfig& config = config_.layers[layer];
  const std::int64_t tokens = x.dim(0);
  const std::int64_t begin = pass.positions.front();
  const std::int64_t head_dim = config_.head_dim;
  const TensorView q_rows = matrix(pass.q, tokens, config_.heads * head_dim);
  const TensorView q = as_heads(q_rows, head_dim);  // (tokens, heads, dim)
  const TensorView k = pass.cache.keys(layer).rows(begin, tokens);
  const TensorView v = pass.cache.values(layer).rows(begin, tokens);
  attention.q.layer->forward(x, q_rows, stream);
  attention.k.layer->forward(x, as_rows(k), stream);
  attention.v.layer->forward(x, as_rows(v), stream);
  if (config.rope) {
    const backend::Rope rope{inverse_frequencies_, config_.rope_interleaved};
    backend_.rope(q, pass.positions, rope, stream);
    backend_.rope(k, pass.positions, rope, stream);
  }
  if (config.qk_norm) {
    backend_.rms_norm(q, {}, config_.rms_epsilon, q, stream);
    backend_.rms_norm(k, {}, config_.rms_epsilon, k, stream);
  }
  if (config.temperature_tuning) {
    backend_.gather_rows(q_rows,
                         counting_from(0, tokens),
                         temperatures(config_, pass.positions),
                         q_rows,
                         stream);
  }
  const TensorView attended =
      matrix(pass.attended, tokens, config_.heads * head_dim);
  backend_.attention(q,
                     pass.cache.keys(layer).rows(0, begin + tokens),
                     pass.cache.values(layer).rows(0, begin + tokens),
                     pass.positions,
                     {config.attention_chunk},
                     1.0F / std::sqrt(static_cast<float>(head_dim)),
                     as_heads(attended, head_dim),
                     stream);
  attention.o.layer->forward(attended, y, stream);
}

void Transformer::run_mlp(const Mlp& mlp,
                          ConstTensorView x,
                          TensorView y,
                          Pass& pass) const {
  backend::Stream& stream = backend_.stream();
  const TensorView gate = matrix(pass.gate, x.dim(0), mlp.gate.out);
  const TensorView up = matrix(pass.up, x.dim(0), mlp.up.out);
  mlp.gate.layer->forward(x, gate, stream);
  mlp.up.layer->forward(x, up, stream);
  backend_.silu_mul(gate, up, gate, stream);
  mlp.down.layer->forward(gate, y, stream);
}

// Tokens are gathered by expert, so that each expert's matrices are read once.
// The score weighs what goes into an expert, not what comes out.
void Transformer::run_experts(const Experts& experts,
                              ConstTensorView x,
                              TensorView y,
                              Pass& pass) const {
  backend::Stream& stream = backend_.stream();
  const TensorView logits = matrix(pass.router, x.dim(0), config_.experts);
  experts.router.layer->forward(x, logits, stream);
  run_mlp(experts.shared, x, y, pass);
  const Tensor on_host = backend_.to_host(logits, stream);
  const std::vector<Route> routes = route(
      on_host.view().as<float>(), config_.experts, config_.experts_per_token);
  for (std::size_t e = 0; e < routes.size(); ++e) {
    const auto tokens = static_cast<std::int64_t>(routes[e].rows.size());
    if (tokens == 0) {
      continue;
    }
    const TensorView in = matrix(pass.routed_in, tokens, config_.hidden);
    const TensorView out = matrix(pass.routed_out, tokens, config_.hidden);
    backend_.gather_rows(x, routes[e].rows, routes[e].scores, in, stream);
    run_mlp(experts.routed[e], in, out, pass);
    backend_.add_to_rows(out, routes[e].rows, y, stream);
  }
}

// Overwrites x with its norm.
void Transformer::run_head(TensorView x, TensorView logits) const {
  backend::Stream& stream = backend_.stream();
  backend_.rms_norm(
      x, final_norm_.weight.view(), config_.rms_epsilon, x, stream);
  head_.layer->forward(x, logits, stream);
}

void Transformer::check_ids(std::span<const std::int32_t> ids) const {
  NIBBLE_CHECK(!ids.empty(),
               kInvalidArgument,
               "token ids: found none, expected at least one");
  for (const std::int32_t id : ids) {
    NIBBLE_CHECK(id >= 0 && id < config_.vocabulary,
                 kInvalidArgument,
                 "token id: found {}, expected 0 to {}",
                 id,
                 config_.vocabulary - 1);
  }
}

void Transformer::visit_linears(FunctionRef<void(LinearSlot&)> visit) {
  each_linear(blocks_, visit);
  visit(head_);
}

void Transformer::visit_norms(FunctionRef<void(NormSlot&)> visit) {
  for (Block& block : blocks_) {
    visit(block.attention_norm);
    visit(block.mlp_norm);
  }
  visit(final_norm_);
}

std::size_t Transformer::resident_bytes() const {
  std::size_t bytes = embedding_.layer->resident_bytes();
  each_linear(blocks_, [&](const LinearSlot& linear) {
    bytes += linear.layer->resident_bytes();
  });
  if (!config_.tied_head) {
    bytes += head_.layer->resident_bytes();
  }
  bytes += final_norm_.weight.bytes();
  for (const Block& block : blocks_) {
    bytes +=
        block.attention_norm.weight.bytes() + block.mlp_norm.weight.bytes();
  }
  return bytes;
}

}  // namespace nibble::model
