#include "nibble/load/native/meta_view.h"

#include <array>
#include <charconv>
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

// The same tensor in every rank.
struct Part {
  const CheckpointReader* reader;
  const TensorInfo* tensor;
};

using Parts = std::vector<Part>;

// How the shards of a tensor make up the whole.
enum class Join { kReplicated, kRows, kColumns };

struct Rename {
  std::string_view native;
  std::string_view hugging_face;
  Join join;
};

constexpr std::array kTopNames{
    Rename{"norm.weight", "model.norm.weight", Join::kReplicated},
    Rename{"output.weight", "lm_head.weight", Join::kRows},
};

// Names inside layers.N. of every generation; both spellings of Llama 4.
constexpr std::array kNormNames{
    Rename{
        "attention_norm.weight", "input_layernorm.weight", Join::kReplicated},
    Rename{"attention.wqkv.layer_norm_weight",
           "input_layernorm.weight",
           Join::kReplicated},
    Rename{"ffn_norm.weight",
           "post_attention_layernorm.weight",
           Join::kReplicated},
    Rename{"feed_forward.norm.weight",
           "post_attention_layernorm.weight",
           Join::kReplicated},
    Rename{"feed_forward.mlp.layer_norm_weight",
           "post_attention_layernorm.weight",
           Join::kReplicated},
    Rename{"attention.wv.weight", "self_attn.v_proj.weight", Join::kRows},
    Rename{"attention.wo.weight", "self_attn.o_proj.weight", Join::kColumns},
};

// Below the family's MLP module ("mlp." or "feed_forward.").
constexpr std::array kMlpNames{
    Rename{"w1.weight", "gate_proj.weight", Join::kRows},
    Rename{"w3.weight", "up_proj.weight", Join::kRows},
    Rename{"w2.weight", "down_proj.weight", Join::kColumns},
    Rename{"mlp.fc2_weight", "down_proj.weight", Join::kColumns},
    Rename{
        "w_in_shared_FD.weight", "shared_expert.gate_proj.weight", Join::kRows},
    Rename{"w_swiglu_FD.weight", "shared_expert.up_proj.weight", Join::kRows},
    Rename{"w_out_shared_DF.weight",
           "shared_expert.down_proj.weight",
           Join::kColumns},
    Rename{"shared_expert.w1.weight",
           "shared_expert.gate_proj.weight",
           Join::kRows},
    Rename{
        "shared_expert.w3.weight", "shared_expert.up_proj.weight", Join::kRows},
    Rename{"shared_expert.w2.weight",
           "shared_expert.down_proj.weight",
           Join::kColumns},
};

// Parts of names that no text model computes with, and why.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kDropped{
    {{"rope.freqs", "derived from the config"},
     {"freq_cis", "derived from the config"},
     {"_extra_state", "left over from training"},
     {"running_gate_stats", "statistics of training"},
     {"global_gate_stats", "statistics of training"},
     {"expert_activation_DE", "statistics of training"},
     {"vision_embeddings.", "vision weights: only the text model is read"},
     {"vision_projection.", "vision weights: only the text model is read"}}};

std::int64_t rows_of(const TensorInfo& tensor) {
  return tensor.shape[0];
}

std::int64_t columns_of(const TensorInfo& tensor) {
  return tensor.shape.rank() < 2 ? 1 : tensor.shape[1];
}

// Codes and scales of the packed modes: no tensor of a dense model has such a
// type or name.
bool is_packed(const TensorInfo& tensor) {
  return !is_weight_dtype(tensor.dtype) || tensor.name.ends_with(".scales") ||
         tensor.name.ends_with(".scales_and_zeros");
}

// Columns [first, first + count) of a row of a part.
SourceRun row_run(const Part& part,
                  std::int64_t row,
                  std::int64_t first,
                  std::int64_t count) {
  return {
      part.reader, part.tensor, row * columns_of(*part.tensor) + first, count};
}

class Viewer {
 public:
  Viewer(const MetaShards& shards, const model::ModelConfig& config)
      : shards_(shards),
        ranks_(static_cast<std::int64_t>(shards.ranks.size())),
        llama4_(config.rope_interleaved),
        tied_head_(config.tied_head),
        prefix_(config.name_prefix),
        hidden_(config.hidden),
        head_dim_(config.head_dim),
        experts_(config.experts),
        query_rows_(config.heads * config.head_dim),
        kv_rows_(config.kv_heads * config.head_dim) {
    NIBBLE_CHECK(query_rows_ % ranks_ == 0 && kv_rows_ % ranks_ == 0,
                 kCorruptData,
                 "shards: found {} of them, expected a number that divides {} "
                 "query rows and {} key rows",
                 ranks_,
                 query_rows_,
                 kv_rows_);
  }

  std::unique_ptr<CheckpointReader> view() {
    for (const TensorInfo& tensor : shards_.ranks[0].weights->tensors()) {
      add(tensor.name);
    }
    std::vector<std::shared_ptr<const CheckpointReader>> sources;
    for (std::size_t r = 0; r < shards_.ranks.size(); ++r) {
      const MetaShard& rank = shards_.ranks[r];
      sources.push_back(rank.weights);
      if (rank.scales) {
        sources.push_back(rank.scales);
        for (const TensorInfo& scale : rank.scales->tensors()) {
          add_as_it_is({rank.scales.get(), &scale},
                       fmt::format("rank{}/scales/{}", r, scale.name));
        }
      }
    }
    for (const auto& [name, text] : shards_.ranks[0].weights->metadata()) {
      note_dropped(name);
    }
    return std::make_unique<container::RemappedReader>(
        std::move(sources), std::move(tensors_), std::move(metadata_));
  }

 private:
  Parts parts_of(const std::string& name) const {
    Parts parts;
    for (const MetaShard& rank : shards_.ranks) {
      parts.push_back({rank.weights.get(), &rank.weights->get(name)});
    }
    return parts;
  }

  bool note_dropped(const std::string& name) {
    for (const auto& [text, reason] : kDropped) {
      if (name.find(text) != std::string::npos) {
        metadata_[name] = std::string("dropped: ") + std::string(reason);
        return true;
      }
    }
    return false;
  }

  void add(const std::string& name) {
    if (note_dropped(name)) {
      return;
    }
    const Parts parts = parts_of(name);
    if (!shards_.mode.empty() && is_packed(*parts[0].tensor)) {
      for (std::size_t r = 0; r < parts.size(); ++r) {
        add_as_it_is(parts[r], fmt::format("rank{}/{}", r, name));
      }
      return;
    }
    if (name == "tok_embeddings.weight") {
      const bool cut_columns = columns_of(*parts[0].tensor) != hidden_;
      join(parts,
           prefix_ + "model.embed_tokens.weight",
           cut_columns ? Join::kColumns : Join::kRows);
      return;
    }
    // gpt-fast's files have a copy of a tied head, which no model reads.
    if (name == "output.weight" && tied_head_) {
      metadata_[name] = "dropped: tied to the embedding by the config";
      return;
    }
    for (const Rename& rename : kTopNames) {
      if (name == rename.native) {
        join(parts, prefix_ + std::string(rename.hugging_face), rename.join);
        return;
      }
    }
    add_in_layer(name, parts);
  }

  void add_in_layer(const std::string& name, const Parts& parts) {
    constexpr std::string_view kLayers = "layers.";
    const std::size_t dot = name.find('.', kLayers.size());
    int layer = -1;
    if (name.starts_with(kLayers) && dot != std::string::npos) {
      std::from_chars(name.data() + kLayers.size(), name.data() + dot, layer);
    }
    const std::string_view rest =
        layer < 0 ? std::string_view() : std::string_view(name).substr(dot + 1);
    const std::string prefix =
        fmt::format("{}model.layers.{}.", prefix_, layer);
    if (rest.empty() ||
        !(add_attention(rest, prefix, parts) || add_norm(rest, prefix, parts) ||
          add_mlp(rest, prefix, parts))) {
      fail_with_hint(ErrorCode::kUnsupported,
                     "only the text models of Llama 2, 3 and 4 are read",
                     "tensor {}: found a name that Meta's layouts do not have",
                     printable(name));
    }
  }

  bool add_attention(std::string_view rest,
                     const std::string& prefix,
                     const Parts& parts) {
    const std::string attention = prefix + "self_attn.";
    if (rest == "attention.wq.weight") {
      add_section(parts, attention + "q_proj.weight", query_rows_, 0, true);
    } else if (rest == "attention.wk.weight") {
      add_section(parts, attention + "k_proj.weight", kv_rows_, 0, true);
    } else if (rest == "attention.wqkv.weight") {
      const std::int64_t q = query_rows_ / ranks_;
      const std::int64_t kv = kv_rows_ / ranks_;
      require_shape(parts, q + 2 * kv, hidden_);
      add_section(parts, attention + "q_proj.weight", query_rows_, 0, true);
      add_section(parts, attention + "k_proj.weight", kv_rows_, q, true);
      add_section(parts, attention + "v_proj.weight", kv_rows_, q + kv, false);
    } else {
      return false;
    }
    return true;
  }

  bool add_norm(std::string_view rest,
                const std::string& prefix,
                const Parts& parts) {
    for (const Rename& rename : kNormNames) {
      if (rest == rename.native) {
        join(parts, prefix + std::string(rename.hugging_face), rename.join);
        return true;
      }
    }
    return false;
  }

  bool add_mlp(std::string_view rest,
               const std::string& prefix,
               const Parts& parts) {
    constexpr std::string_view kFeedForward = "feed_forward.";
    if (!rest.starts_with(kFeedForward)) {
      return false;
    }
    rest.remove_prefix(kFeedForward.size());
    const std::string mlp = prefix + (llama4_ ? "feed_forward." : "mlp.");
    for (const Rename& rename : kMlpNames) {
      if (rest == rename.native) {
        join(parts, mlp + std::string(rename.hugging_face), rename.join);
        return true;
      }
    }
    if (rest == "mlp.fc1_weight") {
      const std::int64_t half = rows_of(*parts[0].tensor) / 2;
      add_rows(parts, mlp + "gate_proj.weight", half * ranks_, half, 0);
      add_rows(parts, mlp + "up_proj.weight", half * ranks_, half, half);
    } else if (rest == "router_DE") {
      add_router(parts[0], mlp + "router.weight");
    } else if (rest == "experts.moe_w_in_eD_F") {
      add_gate_up(parts,
                  parts_of(up_name(parts[0].tensor->name)),
                  mlp + "experts.gate_up_proj");
    } else if (rest == "experts.moe_w_out_eF_D") {
      add_down(parts, mlp + "experts.down_proj");
    } else {
      // Added with its other half, moe_w_in, which must be there.
      return rest == "experts.moe_w_swiglu_eD_F" &&
             shards_.ranks[0].weights->find(gate_name(parts[0].tensor->name)) !=
                 nullptr;
    }
    return true;
  }

  // Names of the two halves of a stacked gate and up projection.
  static std::string up_name(std::string name) {
    return name.replace(name.rfind("moe_w_in"), 8, "moe_w_swiglu");
  }

  static std::string gate_name(std::string name) {
    return name.replace(name.rfind("moe_w_swiglu"), 12, "moe_w_in");
  }

  void require_shape(const Parts& parts,
                     std::int64_t rows,
                     std::int64_t columns) const {
    NIBBLE_CHECK(parts[0].tensor->shape == Shape({rows, columns}),
                 kCorruptData,
                 "tensor {}: found {} in each of {} shards, expected {}",
                 printable(parts[0].tensor->name),
                 to_string(parts[0].tensor->shape),
                 ranks_,
                 to_string(Shape({rows, columns})));
  }

  void push(std::string name,
            const Part& like,
            const Shape& shape,
            std::function<void(std::int64_t, std::vector<SourceRun>&)> row) {
    TensorInfo info;
    info.name = std::move(name);
    info.dtype = like.tensor->dtype;
    info.shape = shape;
    tensors_.push_back({std::move(info), std::move(row)});
  }

  void add_as_it_is(const Part& part, std::string name) {
    const std::size_t rank = part.tensor->shape.rank();
    const std::int64_t width = rank == 0 ? 1 : part.tensor->shape[rank - 1];
    push(std::move(name),
         part,
         part.tensor->shape,
         [part, width](std::int64_t row, std::vector<SourceRun>& runs) {
           runs.push_back({part.reader, part.tensor, row * width, width});
         });
  }

  void join(const Parts& parts, const std::string& name, Join how) {
    const TensorInfo& first = *parts[0].tensor;
    if (how == Join::kReplicated || ranks_ == 1) {
      add_as_it_is(parts[0], name);
      return;
    }
    NIBBLE_CHECK(first.shape.rank() == 2,
                 kCorruptData,
                 "tensor {}: found {}, expected two dimensions",
                 printable(first.name),
                 to_string(first.shape));
    if (how == Join::kRows) {
      add_rows(parts, name, rows_of(first) * ranks_, rows_of(first), 0);
      return;
    }
    const std::int64_t width = columns_of(first);
    push(name,
         parts[0],
         {rows_of(first), width * ranks_},
         [parts, width](std::int64_t row, std::vector<SourceRun>& runs) {
           for (const Part& part : parts) {
             runs.push_back(row_run(part, row, 0, width));
           }
         });
  }

  // Rows [first, first + per_rank) of every shard, in rank order.
  void add_rows(const Parts& parts,
                const std::string& name,
                std::int64_t rows,
                std::int64_t per_rank,
                std::int64_t first) {
    const std::int64_t width = columns_of(*parts[0].tensor);
    push(name,
         parts[0],
         {rows, width},
         [parts, width, per_rank, first](std::int64_t row,
                                         std::vector<SourceRun>& runs) {
           runs.push_back(
               row_run(parts[static_cast<std::size_t>(row / per_rank)],
                       first + row % per_rank,
                       0,
                       width));
         });
  }

  // q, k or v: rows of whole heads, in Hugging Face's order of a head's rows.
  void add_section(const Parts& parts,
                   const std::string& name,
                   std::int64_t rows,
                   std::int64_t first,
                   bool rotary) {
    const std::int64_t per_rank = rows / ranks_;
    const std::int64_t width = columns_of(*parts[0].tensor);
    NIBBLE_CHECK(
        width == hidden_ && first + per_rank <= rows_of(*parts[0].tensor),
        kCorruptData,
        "tensor {}: found {} in each of {} shards, expected {} rows of "
        "{}",
        printable(parts[0].tensor->name),
        to_string(parts[0].tensor->shape),
        ranks_,
        per_rank,
        hidden_);
    const std::int64_t head_dim = head_dim_;
    const bool permute = rotary && !llama4_;
    push(name,
         parts[0],
         {rows, width},
         [=](std::int64_t row, std::vector<SourceRun>& runs) {
           const std::int64_t native =
               permute ? model::row_of_pair(row, head_dim) : row;
           runs.push_back(
               row_run(parts[static_cast<std::size_t>(native / per_rank)],
                       first + native % per_rank,
                       0,
                       width));
         });
  }

  // (hidden, experts), input-major, becomes (experts, hidden).
  void add_router(const Part& part, const std::string& name) {
    const std::int64_t experts = columns_of(*part.tensor);
    const std::int64_t hidden = rows_of(*part.tensor);
    push(name,
         part,
         {experts, hidden},
         [part, experts, hidden](std::int64_t row,
                                 std::vector<SourceRun>& runs) {
           runs.push_back({part.reader, part.tensor, row, hidden, experts});
         });
  }

  // Shards (experts * hidden, width / ranks) of gate and of up become
  // (experts, hidden, 2 * width), gate first.
  void add_gate_up(const Parts& gate,
                   const Parts& up,
                   const std::string& name) {
    require_shape(gate, experts_ * hidden_, columns_of(*gate[0].tensor));
    require_shape(up, experts_ * hidden_, columns_of(*gate[0].tensor));
    const std::int64_t width = columns_of(*gate[0].tensor);
    push(name,
         gate[0],
         {experts_, hidden_, 2 * width * ranks_},
         [gate, up, width](std::int64_t row, std::vector<SourceRun>& runs) {
           for (const Parts* parts : {&gate, &up}) {
             for (const Part& part : *parts) {
               runs.push_back(row_run(part, row, 0, width));
             }
           }
         });
  }

  // Shards (experts * width / ranks, hidden) become (experts, width, hidden).
  void add_down(const Parts& parts, const std::string& name) {
    const std::int64_t rows = rows_of(*parts[0].tensor);
    NIBBLE_CHECK(rows % experts_ == 0,
                 kCorruptData,
                 "tensor {}: found {} rows, expected a multiple of {} experts",
                 printable(parts[0].tensor->name),
                 rows,
                 experts_);
    const std::int64_t per_rank = rows / experts_;
    const std::int64_t width = per_rank * ranks_;
    const std::int64_t hidden = columns_of(*parts[0].tensor);
    push(name,
         parts[0],
         {experts_, width, hidden},
         [parts, per_rank, width, hidden](std::int64_t row,
                                          std::vector<SourceRun>& runs) {
           const std::int64_t expert = row / width;
           const std::int64_t unit = row % width;
           runs.push_back(
               row_run(parts[static_cast<std::size_t>(unit / per_rank)],
                       expert * per_rank + unit % per_rank,
                       0,
                       hidden));
         });
  }

  const MetaShards& shards_;
  std::int64_t ranks_;
  bool llama4_;  // q and k keep Meta's order, the MLP is "feed_forward"
  bool tied_head_;
  std::string prefix_;
  std::int64_t hidden_;
  std::int64_t head_dim_;
  std::int64_t experts_;
  std::int64_t query_rows_;
  std::int64_t kv_rows_;
  std::vector<RemappedTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace

std::unique_ptr<CheckpointReader> view_as_hugging_face(
    const MetaShards& shards, const nlohmann::json& config) {
  return Viewer(shards, model::parse_config(config)).view();
}

}  // namespace nibble::load
