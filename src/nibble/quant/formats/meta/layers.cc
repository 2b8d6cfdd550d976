#include "nibble/quant/formats/meta/layers.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "nibble/base/error.h"

namespace nibble::quant::meta {
namespace {

using container::CheckpointReader;
using container::TensorInfo;

// Inputs that share an INT4 scale.
constexpr std::int64_t kGroup = 128;
// Largest magnitude of an activation that Meta's code takes into account.
constexpr float kInputBound = 1200;

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
    }
    return std::move(layers_);
  }

 private:
  void add(const std::string& native) {
    const auto split = split_layer(native);
    const KnownName* known = nullptr;
    for (const KnownName& name : kNames) {
      known = split && split->second == name.native ? &name : known;
    }
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

  // Scales come under the native name, under the names that Meta's reader gives
  // experts, or (Llama 3) as "{layer}_feed_forward.{w}_{rank}".
  const TensorInfo& find_scale(const std::string& native,
                               int layer,
                               const KnownName& known,
                               std::size_t rank) const {
    const std::array<std::string, 3> spellings{
        native,
        fmt::format("layers.{}.{}", layer, known.scale),
        fmt::format("{}_feed_forward.{}_{}", layer, known.scale, rank)};
    for (const std::string& spelling : spellings) {
      const auto* found =
          reader_.find(fmt::format("rank{}/scales/{}", rank, spelling));
      if (found != nullptr) {
        return *found;
      }
    }
    fail(ErrorCode::kNotFound,
         "tensor {} of rank {}: found no scales, expected {} or {} in its "
         "scale file",
         printable(native),
         rank,
         printable(spellings[0]),
         printable(spellings[1]));
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
    const std::int64_t out =
        tensor.cut_inputs ? tensor.rows : tensor.rows / ranks;
    const std::int64_t in =
        (tensor.cut_inputs ? tensor.columns / ranks : tensor.columns) *
        tensor.experts;
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
    NIBBLE_CHECK(
        tensor.packing == Packing::kFp8 || in / tensor.experts % kGroup == 0,
        kCorruptData,
        "tensor {}: found {} inputs in a rank, expected a multiple of "
        "{}",
        printable(tensor.native),
        in / tensor.experts,
        kGroup);
  }

  void check_scales(const PackedTensor& tensor) const {
    const auto ranks = static_cast<std::int64_t>(ranks_);
    const std::int64_t out =
        tensor.cut_inputs ? tensor.rows : tensor.rows / ranks;
    const std::int64_t in =
        tensor.cut_inputs ? tensor.columns / ranks : tensor.columns;
    const std::int64_t elements = tensor.packing == Packing::kInt4
                                      ? tensor.experts * (in / kGroup) * out
                                      : tensor.experts * out;
    for (const TensorInfo* scale : tensor.scales) {
      NIBBLE_CHECK(
          scale->dtype == DType::kF32 && scale->shape.elements() == elements,
          kCorruptData,
          "scales {}: found {} {}, expected {} F32",
          printable(scale->name),
          dtype_name(scale->dtype),
          to_string(scale->shape),
          elements);
    }
  }

  [[nodiscard]] std::pair<std::string, std::string> module_of(
      int layer, const KnownName& known) const {
    const std::string prefix =
        fmt::format("{}model.layers.{}.", config_.name_prefix, layer);
    return known.stacked ? std::pair(prefix + "feed_forward.experts.",
                                     "." + std::string(known.projection))
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

  [[nodiscard]] LayerSpec spec_of(const PackedTensor& tensor) const {
    LayerSpec spec;
    spec.weight.scale_dtype = DType::kF32;
    if (tensor.packing == Packing::kInt4) {
      spec.weight.scheme = "int4";
      spec.weight.bits = 4;
      spec.weight.grain = Grain::kGroup;
      spec.weight.group = kGroup;
      return spec;
    }
    spec.weight.scheme = "fp8";
    spec.weight.floating = true;
    NumberSpec input = spec.weight;
    input.grain = Grain::kToken;
    input.upper_bound = kInputBound;
    if (tensor.cut_inputs && ranks_ > 1) {
      // Every rank has a scale of its own for its part of a row, and codes its
      // part of the activations by itself: blocks keep both exact.
      spec.weight.grain = Grain::kBlock;
      spec.weight.block_rows = 1;
      spec.weight.block_columns =
          tensor.columns / static_cast<std::int64_t>(ranks_);
      input.grain = Grain::kGroup;
      input.group = spec.weight.block_columns;
    }
    spec.input = input;
    return spec;
  }

  const model::ModelConfig& config_;
  const CheckpointReader& reader_;
  std::size_t ranks_;
  PackedLayers layers_;
  std::vector<std::pair<std::string, std::string>> modules_;
};

}  // namespace

PackedLayers find_packed_layers(const model::ModelConfig& config,
                                const CheckpointReader& reader,
                                std::size_t ranks) {
  return Finder(config, reader, ranks).find();
}

}  // namespace nibble::quant::meta
