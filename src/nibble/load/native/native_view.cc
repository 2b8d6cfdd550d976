#include "nibble/load/native/native_view.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/model/config.h"

namespace nibble::load {
namespace {

using container::CheckpointReader;
using container::RemappedTensor;
using container::SourceRun;
using container::TensorInfo;

// Rows or columns that one rank holds of a whole.
struct Cut {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

class NativeViewer {
 public:
  NativeViewer(std::shared_ptr<const CheckpointReader> source,
               const model::ModelConfig& config,
               NativeLayout layout,
               std::int64_t ranks,
               std::int64_t rank)
      : source_(std::move(source)),
        config_(config),
        layout_(layout),
        ranks_(ranks),
        rank_(rank),
        llama4_(config.experts > 0 || config.rope_interleaved) {
    check();
  }

  std::unique_ptr<container::RemappedReader> view() {
    const std::string& prefix = config_.name_prefix;
    add_embedding(prefix + "model.embed_tokens.weight");
    for (std::size_t i = 0; i < config_.layers.size(); ++i) {
      add_layer(fmt::format("layers.{}.", i),
                fmt::format("{}model.layers.{}.", prefix, i),
                config_.layers[i]);
    }
    add_whole("norm.weight", prefix + "model.norm.weight");
    const std::string head = prefix + "lm_head.weight";
    if (source_->find(head) != nullptr) {
      add_rows("output.weight", {{head, cut(config_.vocabulary)}});
    } else if (layout_ == NativeLayout::kGptFast) {
      // gpt-fast loads strictly and knows no tied head: it gets a copy.
      add_rows(
          "output.weight",
          {{prefix + "model.embed_tokens.weight", cut(config_.vocabulary)}});
    }
    return std::make_unique<container::RemappedReader>(
        std::vector<std::shared_ptr<const CheckpointReader>>{source_},
        std::move(tensors_),
        std::map<std::string, std::string>{});
  }

 private:
  // A row range of a tensor; rotary: rows of each head in Meta's order.
  struct Section {
    std::string name;
    Cut rows;
    bool rotary = false;
  };

  void check() const {
    NIBBLE_CHECK(layout_ == NativeLayout::kMeta || (ranks_ == 1 && !llama4_),
                 kUnsupported,
                 "gpt-fast layout: found {}, expected a Llama 2 or 3 model in "
                 "one piece",
                 llama4_ ? "Llama 4" : "several shards");
    NIBBLE_CHECK(!config_.attention_bias && !config_.mlp_bias,
                 kUnsupported,
                 "native layout: found biases, which it cannot hold");
    NIBBLE_CHECK(config_.head_dim * config_.heads == config_.hidden,
                 kUnsupported,
                 "native layout: found a head size of {}, expected {} / {}: "
                 "its readers compute it",
                 config_.head_dim,
                 config_.hidden,
                 config_.heads);
    std::int64_t common = std::gcd(config_.heads, config_.kv_heads);
    common = std::gcd(common, config_.vocabulary);
    for (const model::LayerConfig& layer : config_.layers) {
      common = std::gcd(
          common,
          layer.experts ? config_.expert_intermediate : layer.intermediate);
    }
    if (ranks_ < 1 || common % ranks_ != 0) {
      fail_with_hint(ErrorCode::kInvalidArgument,
                     fmt::format("any divisor of {} works", common),
                     "shards: found {}, expected a number that divides the "
                     "heads, key heads, vocabulary and MLP widths",
                     ranks_);
    }
  }

  [[nodiscard]] Cut cut(std::int64_t whole) const {
    return {whole / ranks_ * rank_, whole / ranks_};
  }

  const TensorInfo& get(const std::string& name) const {
    return source_->get(name);
  }

  // A tensor with the type of the first of those that it is made from.
  void push(std::string name,
            std::vector<const TensorInfo*> from,
            const Shape& shape,
            std::function<void(std::int64_t, std::vector<SourceRun>&)> row) {
    TensorInfo info;
    info.name = std::move(name);
    info.dtype = from.front()->dtype;
    info.shape = shape;
    tensors_.push_back({std::move(info), std::move(row), std::move(from)});
  }

  void add_whole(const std::string& name, const std::string& from) {
    const TensorInfo* tensor = &get(from);
    const CheckpointReader* reader = source_.get();
    const std::int64_t width = tensor->shape.elements();
    push(name,
         {tensor},
         tensor->shape,
         [=](std::int64_t row, std::vector<SourceRun>& runs) {
           runs.push_back({reader, tensor, row * width, width});
         });
  }

  void add_embedding(const std::string& from) {
    // Llama 2, whose rotary base is 10000, cuts the embedding along its
    // columns, later generations along the vocabulary.
    const bool llama2 = !llama4_ && config_.rope_theta == 10000;
    if (llama2 && ranks_ > 1) {
      add_columns("tok_embeddings.weight", from, cut(config_.hidden));
    } else {
      add_rows("tok_embeddings.weight", {{from, cut(config_.vocabulary)}});
    }
  }

  // Sections of rows, one below the other.
  void add_rows(const std::string& name, const std::vector<Section>& sections) {
    struct Source {
      const TensorInfo* tensor;
      Cut rows;
      bool rotary;
    };

    std::vector<Source> sources;
    std::int64_t rows = 0;
    for (const Section& section : sections) {
      sources.push_back(
          {&get(section.name), section.rows, section.rotary && !llama4_});
      rows += section.rows.count;
    }
    const TensorInfo& first = *sources[0].tensor;
    const std::int64_t width = first.shape[1];
    std::vector<const TensorInfo*> parts;
    for (const Source& part : sources) {
      parts.push_back(part.tensor);
      NIBBLE_CHECK(part.tensor->dtype == first.dtype,
                   kUnsupported,
                   "tensor {}: found {}, expected {} as {}, with which it is "
                   "fused",
                   part.tensor->name,
                   dtype_name(part.tensor->dtype),
                   dtype_name(first.dtype),
                   first.name);
    }
    const CheckpointReader* reader = source_.get();
    const std::int64_t head_dim = config_.head_dim;
    push(name,
         std::move(parts),
         {rows, width},
         [=](std::int64_t row, std::vector<SourceRun>& runs) {
           std::size_t s = 0;
           while (row >= sources[s].rows.count) {
             row -= sources[s].rows.count;
             ++s;
           }
           std::int64_t from = sources[s].rows.first + row;
           if (sources[s].rotary) {
             from = model::row_of_half(from, head_dim);
           }
           runs.push_back({reader, sources[s].tensor, from * width, width});
         });
  }

  void add_columns(const std::string& name,
                   const std::string& from,
                   Cut columns) {
    const TensorInfo* tensor = &get(from);
    const CheckpointReader* reader = source_.get();
    const std::int64_t width = tensor->shape[1];
    push(name,
         {tensor},
         {tensor->shape[0], columns.count},
         [=](std::int64_t row, std::vector<SourceRun>& runs) {
           runs.push_back(
               {reader, tensor, row * width + columns.first, columns.count});
         });
  }

  void add_layer(const std::string& native,
                 const std::string& from,
                 const model::LayerConfig& layer) {
    const std::string attention = from + "self_attn.";
    const Section q{attention + "q_proj.weight",
                    cut(config_.heads * config_.head_dim),
                    true};
    const Section k{attention + "k_proj.weight",
                    cut(config_.kv_heads * config_.head_dim),
                    true};
    const Section v{attention + "v_proj.weight", k.rows, false};
    if (llama4_ || layout_ == NativeLayout::kGptFast) {
      add_rows(native + "attention.wqkv.weight", {q, k, v});
    } else {
      add_rows(native + "attention.wq.weight", {q});
      add_rows(native + "attention.wk.weight", {k});
      add_rows(native + "attention.wv.weight", {v});
    }
    add_columns(native + "attention.wo.weight",
                attention + "o_proj.weight",
                cut(config_.heads * config_.head_dim));
    if (llama4_) {
      add_llama4_mlp(native, from, layer);
    } else {
      const Cut width = cut(layer.intermediate);
      add_rows(native + "feed_forward.w1.weight",
               {{from + "mlp.gate_proj.weight", width}});
      add_columns(native + "feed_forward.w2.weight",
                  from + "mlp.down_proj.weight",
                  width);
      add_rows(native + "feed_forward.w3.weight",
               {{from + "mlp.up_proj.weight", width}});
      add_whole(native + "attention_norm.weight",
                from + "input_layernorm.weight");
      add_whole(native + "ffn_norm.weight",
                from + "post_attention_layernorm.weight");
    }
  }

  void add_llama4_mlp(const std::string& native,
                      const std::string& from,
                      const model::LayerConfig& layer) {
    const std::string mlp = from + "feed_forward.";
    const std::string forward = native + "feed_forward.";
    add_whole(native + "attention.wqkv.layer_norm_weight",
              from + "input_layernorm.weight");
    add_whole(
        forward + (layer.experts ? "norm.weight" : "mlp.layer_norm_weight"),
        from + "post_attention_layernorm.weight");
    if (!layer.experts) {
      const Cut width = cut(layer.intermediate);
      add_rows(
          forward + "mlp.fc1_weight",
          {{mlp + "gate_proj.weight", width}, {mlp + "up_proj.weight", width}});
      add_columns(forward + "mlp.fc2_weight", mlp + "down_proj.weight", width);
      return;
    }
    const Cut width = cut(config_.expert_intermediate);
    add_router(forward + "router_DE", mlp + "router.weight");
    add_stack_columns(
        forward + "experts.moe_w_in_eD_F", mlp + "experts.gate_up_proj", width);
    add_stack_columns(forward + "experts.moe_w_swiglu_eD_F",
                      mlp + "experts.gate_up_proj",
                      {config_.expert_intermediate + width.first, width.count});
    add_stack_rows(
        forward + "experts.moe_w_out_eF_D", mlp + "experts.down_proj", width);
    const std::string shared = mlp + "shared_expert.";
    if (source_->find(shared + "gate_proj.weight") != nullptr) {
      add_rows(forward + "w_in_shared_FD.weight",
               {{shared + "gate_proj.weight", width}});
      add_rows(forward + "w_swiglu_FD.weight",
               {{shared + "up_proj.weight", width}});
      add_columns(forward + "w_out_shared_DF.weight",
                  shared + "down_proj.weight",
                  width);
    }
  }

  // (experts, hidden) becomes (hidden, experts).
  void add_router(const std::string& name, const std::string& from) {
    const TensorInfo* tensor = &get(from);
    const CheckpointReader* reader = source_.get();
    const std::int64_t experts = tensor->shape[0];
    const std::int64_t hidden = tensor->shape[1];
    push(name,
         {tensor},
         {hidden, experts},
         [=](std::int64_t row, std::vector<SourceRun>& runs) {
           runs.push_back({reader, tensor, row, experts, hidden});
         });
  }

  // Columns of every expert of (experts, in, columns): (experts * in, count).
  void add_stack_columns(const std::string& name,
                         const std::string& from,
                         Cut columns) {
    const TensorInfo* tensor = &get(from);
    const CheckpointReader* reader = source_.get();
    const std::int64_t width = tensor->shape[2];
    push(name,
         {tensor},
         {tensor->shape[0] * tensor->shape[1], columns.count},
         [=](std::int64_t row, std::vector<SourceRun>& runs) {
           runs.push_back(
               {reader, tensor, row * width + columns.first, columns.count});
         });
  }

  // Rows of every expert of (experts, in, out): (experts * count, out).
  void add_stack_rows(const std::string& name,
                      const std::string& from,
                      Cut rows) {
    const TensorInfo* tensor = &get(from);
    const CheckpointReader* reader = source_.get();
    const std::int64_t in = tensor->shape[1];
    const std::int64_t out = tensor->shape[2];
    push(name,
         {tensor},
         {tensor->shape[0] * rows.count, out},
         [=](std::int64_t row, std::vector<SourceRun>& runs) {
           const std::int64_t from_row =
               row / rows.count * in + rows.first + row % rows.count;
           runs.push_back({reader, tensor, from_row * out, out});
         });
  }

  std::shared_ptr<const CheckpointReader> source_;
  const model::ModelConfig& config_;
  NativeLayout layout_;
  std::int64_t ranks_;
  std::int64_t rank_;
  bool llama4_;
  std::vector<RemappedTensor> tensors_;
};

}  // namespace

std::unique_ptr<container::RemappedReader> view_as_native(
    std::shared_ptr<const CheckpointReader> source,
    const nlohmann::json& config,
    NativeLayout layout,
    std::int64_t ranks,
    std::int64_t rank) {
  const model::ModelConfig parsed = model::parse_config(config);
  return NativeViewer(std::move(source), parsed, layout, ranks, rank).view();
}

}  // namespace nibble::load
