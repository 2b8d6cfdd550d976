#include "nibble/quant/formats/meta/layers.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "nibble/base/error.h"
#include "nibble/quant/core/mixed_spec.h"
#include "nibble/quant/formats/meta/shard_module.h"

namespace nibble::quant::meta {
namespace {

using container::CheckpointReader;
using container::TensorInfo;

struct KnownName {
  std::string_view native;      // inside layers.N.
  std::string_view projection;  // below the layer's module
  std::string_view scale;       // second spelling of the scale's name
  bool stacked;
  bool cut_inputs;
  bool expert;  // as wide as an expert
};

constexpr std::array kNames{
    KnownName{"feed_forward.experts.moe_w_in_eD_F",
              "gate_proj",
              "feed_forward.experts.w1",
              true,
              false,
              true},
    KnownName{"feed_forward.experts.moe_w_swiglu_eD_F",
              "up_proj",
              "feed_forward.experts.w3",
              true,
              false,
              true},
    KnownName{"feed_forward.experts.moe_w_out_eF_D",
              "down_proj",
              "feed_forward.experts.w2",
              true,
              true,
              true},
    KnownName{"feed_forward.w_in_shared_FD.weight",
              "feed_forward.shared_expert.gate_proj",
              "",
              false,
              false,
              true},
    KnownName{"feed_forward.w_swiglu_FD.weight",
              "feed_forward.shared_expert.up_proj",
              "",
              false,
              false,
              true},
    KnownName{"feed_forward.w_out_shared_DF.weight",
              "feed_forward.shared_expert.down_proj",
              "",
              false,
              true,
              true},
    KnownName{
        "feed_forward.w1.weight", "mlp.gate_proj", "w1", false, false, false},
    KnownName{
        "feed_forward.w3.weight", "mlp.up_proj", "w3", false, false, false},
    KnownName{
        "feed_forward.w2.weight", "mlp.down_proj", "w2", false, true, false},
};

// Layer number and the rest of "layers.N.rest".
std::optional<std::pair<int, std::string>> split_layer(
    std::string_view native) {
  constexpr std::string_view kLayers = "layers.";
  if (!native.starts_with(kLayers)) {
    return std::nullopt;
  }
  native.remove_prefix(kLayers.size());
  int layer = 0;
  const auto [end, error] =
      std::from_chars(native.data(), native.data() + native.size(), layer);
  if (error != std::errc() || end == native.data() + native.size()) {
    return std::nullopt;
  }
  return std::pair(layer,
                   std::string(native.substr(
                       static_cast<std::size_t>(end - native.data()) + 1)));
}

const KnownName* known_name(const std::string& rest) {
  for (const KnownName& name : kNames) {
    if (rest == name.native) {
      return &name;
    }
  }
  return nullptr;
}

// The spellings of a key of scales: the native name (int4), the one by which
// Meta's reader renames experts (fp8), and Llama 3's (fp8).
struct ScaleKeys {
  std::string native;
  std::string renamed;   // "layers.1.feed_forward.experts.w1"
  std::string numbered;  // "1_feed_forward.w1_0"
};

ScaleKeys scale_keys(std::string_view native,
                     int layer,
                     const KnownName& known,
                     std::size_t rank) {
  return {std::string(native),
          fmt::format("layers.{}.{}", layer, known.scale),
          fmt::format("{}_feed_forward.{}_{}", layer, known.scale, rank)};
}

class Finder {
 public:
  Finder(const model::ModelConfig& config,
         const CheckpointReader& reader,
         std::size_t ranks)
      : config_(config), reader_(reader), ranks_(ranks) {}

  PackedLayers find() {
    constexpr std::string_view kFirst = "rank0/";
    for (const TensorInfo& tensor : reader_.tensors()) {
      const std::string_view name = tensor.name;
      if (name.starts_with(kFirst) && !name.starts_with("rank0/scales/")) {
        add(std::string(name.substr(kFirst.size())));
      }
    }
    // Layers point into tensors, whose place is settled only now.
    for (std::size_t i = 0; i < layers_.tensors.size(); ++i) {
      add_layers(layers_.tensors[i], modules_[i]);
      add_stored(layers_.tensors[i]);
    }
    return std::move(layers_);
  }

 private:
  void add(const std::string& native) {
    const auto split = split_layer(native);
    const KnownName* known = split ? known_name(split->second) : nullptr;
    NIBBLE_CHECK(
        known != nullptr && split->first >= 0 &&
            static_cast<std::size_t>(split->first) < config_.layers.size(),
        kUnsupported,
        "tensor {}: found packed codes, expected them in a feed-forward "
        "layer only",
        printable(native));
    PackedTensor tensor;
    tensor.native = native;
    tensor.stacked = known->stacked;
    tensor.cut_inputs = known->cut_inputs;
    tensor.experts = known->stacked ? config_.experts : 1;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      tensor.weights.push_back(
          &reader_.get(fmt::format("rank{}/{}", rank, native)));
      tensor.scales.push_back(&find_scale(native, split->first, *known, rank));
    }
    measure(tensor, split->first, known->expert);
    check_scales(tensor);
    modules_.push_back(module_of(split->first, *known));
    layers_.tensors.push_back(std::move(tensor));
  }

  const TensorInfo& find_scale(const std::string& native,
                               int layer,
                               const KnownName& known,
                               std::size_t rank) const {
    const ScaleKeys keys = scale_keys(native, layer, known, rank);
    for (const std::string& key : {keys.native, keys.renamed, keys.numbered}) {
      const auto* found =
          reader_.find(fmt::format("rank{}/scales/{}", rank, key));
      if (found != nullptr) {
        return *found;
      }
    }
    fail(ErrorCode::kNotFound,
         "tensor {} of rank {}: found no scales, expected {} or {} in its "
         "scale file",
         printable(native),
         rank,
         printable(keys.native),
         printable(keys.renamed));
  }

  // Sizes of the matrix and how it is packed. One side is the model's width;
  // the other is what the shape says, halved when two codes share a byte.
  void measure(PackedTensor& tensor, int layer, bool expert) const {
    const Shape& shape = tensor.weights[0]->shape;
    const std::int64_t hidden = config_.hidden;
    const auto ranks = static_cast<std::int64_t>(ranks_);
    const std::int64_t width =
        expert ? config_.expert_intermediate
               : config_.layers[static_cast<std::size_t>(layer)].intermediate;
    tensor.rows = tensor.cut_inputs ? hidden : width;
    tensor.columns = tensor.cut_inputs ? width : hidden;
    tensor.rank_rows = tensor.cut_inputs ? tensor.rows : tensor.rows / ranks;
    tensor.rank_columns =
        tensor.cut_inputs ? tensor.columns / ranks : tensor.columns;
    const std::int64_t out = tensor.rank_rows;
    const std::int64_t in = tensor.rank_columns * tensor.experts;
    const Shape fp8 = tensor.stacked ? Shape({in, out}) : Shape({out, in});
    const Shape int4 =
        tensor.stacked ? Shape({in / 2, out}) : Shape({out, in / 2});
    NIBBLE_CHECK(width % ranks == 0 && (shape == fp8 || shape == int4),
                 kCorruptData,
                 "tensor {}: found {} in each of {} ranks, expected {} (fp8) "
                 "or {} (int4)",
                 printable(tensor.native),
                 to_string(shape),
                 ranks_,
                 to_string(fp8),
                 to_string(int4));
    tensor.packing = shape == fp8 ? Packing::kFp8 : Packing::kInt4;
  }

  // Scales stand group by group: (experts, groups, out). How many inputs share
  // one follows from their number: 128 in Meta's int4 files, all of a rank's in
  // its fp8 files; fewer where a rank has fewer, more ranks' worth of them
  // where ranks were joined.
  void check_scales(PackedTensor& tensor) const {
    const std::int64_t lines = tensor.experts * tensor.rank_rows;
    const std::int64_t found = tensor.scales[0]->shape.elements();
    NIBBLE_CHECK(lines > 0 && found > 0 && found % lines == 0 &&
                     tensor.rank_columns % (found / lines) == 0,
                 kCorruptData,
                 "scales {}: found {}, expected a whole number of scales for "
                 "{} inputs of {} outputs",
                 printable(tensor.scales[0]->name),
                 to_string(tensor.scales[0]->shape),
                 tensor.rank_columns,
                 lines);
    tensor.groups = found / lines;
    for (const TensorInfo* scale : tensor.scales) {
      NIBBLE_CHECK(
          scale->dtype == DType::kF32 && scale->shape.elements() == found,
          kCorruptData,
          "scales {}: found {} {}, expected {} F32",
          printable(scale->name),
          dtype_name(scale->dtype),
          to_string(scale->shape),
          found);
    }
  }

  [[nodiscard]] std::pair<std::string, std::string> module_of(
      int layer, const KnownName& known) const {
    const std::string prefix =
        fmt::format("{}model.layers.{}.", config_.name_prefix, layer);
    return known.stacked ? std::pair(prefix + "feed_forward.experts.",
                                     fmt::format(".{}", known.projection))
                         : std::pair(prefix, std::string(known.projection));
  }

  void add_layers(const PackedTensor& tensor,
                  const std::pair<std::string, std::string>& module) {
    for (std::int64_t e = 0; e < tensor.experts; ++e) {
      const std::string name =
          tensor.stacked ? fmt::format("{}{}{}", module.first, e, module.second)
                         : module.first + module.second;
      layers_.layers.emplace(name, PackedLayer{&tensor, e, spec_of(tensor)});
    }
  }

  void add_stored(const PackedTensor& tensor) {
    const std::int64_t span = tensor.rank_columns / tensor.groups;
    LayerSpec spec = tensor.packing == Packing::kInt4
                         ? int4_mixed_spec(span)
                         : fp8_mixed_spec(tensor.rank_columns, span);
    spec.input.reset();  // of no product, only of what a file holds
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      for (std::int64_t e = 0; e < tensor.experts; ++e) {
        layers_.stored.emplace(
            ShardModule::name(static_cast<std::int64_t>(rank),
                              tensor.native,
                              e,
                              tensor.stacked ? tensor.experts : 0),
            StoredLayer{&tensor, rank, e, spec});
      }
    }
  }

  [[nodiscard]] static LayerSpec spec_of(const PackedTensor& tensor) {
    const std::int64_t span = tensor.rank_columns / tensor.groups;
    return tensor.packing == Packing::kInt4
               ? int4_mixed_spec(span)
               : fp8_mixed_spec(tensor.columns, span);
  }

  const model::ModelConfig& config_;
  const CheckpointReader& reader_;
  std::size_t ranks_;
  PackedLayers layers_;
  std::vector<std::pair<std::string, std::string>> modules_;
};

}  // namespace

bool is_packable(std::string_view native) {
  const auto split = split_layer(native);
  return split && known_name(split->second) != nullptr;
}

std::string scale_key(std::string_view native,
                      std::int64_t rank,
                      Packing packing) {
  const auto split = split_layer(native);
  const KnownName* known = split ? known_name(split->second) : nullptr;
  NIBBLE_CHECK(
      known != nullptr,
      kUnsupported,
      "tensor {}: found a scheme for it, expected one for feed-forward "
      "layers only: Meta's tools pack no other",
      printable(native));
  const ScaleKeys keys =
      scale_keys(native, split->first, *known, static_cast<std::size_t>(rank));
  if (packing == Packing::kInt4 || known->scale.empty()) {
    return keys.native;
  }
  return known->stacked ? keys.renamed : keys.numbered;
}

PackedLayers find_packed_layers(const model::ModelConfig& config,
                                const CheckpointReader& reader,
                                std::size_t ranks) {
  return Finder(config, reader, ranks).find();
}

}  // namespace nibble::quant::meta
