#include "nibble/quant/formats/gpt_fast/layers.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "nibble/base/error.h"

namespace nibble::quant::gpt_fast {
namespace {

using container::CheckpointReader;
using container::TensorInfo;

constexpr std::string_view kPrefix = "rank0/";
constexpr std::string_view kWeight = ".weight";

// Scales and the group they cover come from scales_and_zeros (groups, out, 2).
class Finder {
 public:
  Finder(const model::ModelConfig& config,
         const CheckpointReader& reader,
         std::string_view layout)
      : config_(config), reader_(reader), layout_(layout) {
    found_.head_dim = config.head_dim;
  }

  PackedLayers find() {
    for (const TensorInfo& tensor : reader_.tensors()) {
      const std::string_view name = tensor.name;
      if (name.starts_with(kPrefix) && name.ends_with(kWeight)) {
        add(tensor,
            std::string(
                name.substr(kPrefix.size(),
                            name.size() - kPrefix.size() - kWeight.size())));
      }
    }
    if (!layout_.empty() && !layout_used_) {
      fail_with_hint(ErrorCode::kInvalidArgument,
                     "leave --int4-layout out: this file tells its order",
                     "int4 layout {}: found no codes that can be in this "
                     "order",
                     printable(layout_));
    }
    return std::move(found_);
  }

 private:
  const std::int64_t& hidden() const { return config_.hidden; }

  void add(const TensorInfo& weight, const std::string& native) {
    PackedTensor packed;
    packed.native = native;
    packed.weight = &weight;
    const TensorInfo* scales =
        reader_.find(fmt::format("rank0/{}.scales", native));
    const TensorInfo* pairs =
        reader_.find(fmt::format("rank0/{}.scales_and_zeros", native));
    NIBBLE_CHECK((scales != nullptr) != (pairs != nullptr),
                 kCorruptData,
                 "tensor {}: found {}, expected scales (int8) or "
                 "scales_and_zeros (int4)",
                 printable(native),
                 scales != nullptr ? "both kinds of scales" : "no scales");
    packed.scales = scales != nullptr ? scales : pairs;
    name_layers(packed);
    if (scales != nullptr) {
      measure_int8(packed);
    } else {
      measure_int4(packed);
    }
    packed.spec = spec_of(packed);
    for (auto& [module, layer] : pending_) {
      found_.layers.emplace(module, layer);
    }
    found_.tensors.emplace(native, std::move(packed));
  }

  void push(const std::string& module,
            const PackedTensor& packed,
            std::int64_t first,
            std::int64_t rows,
            bool rotary = false) {
    pending_.emplace_back(module,
                          PackedLayer{packed.native, first, rows, rotary});
  }

  // The model's linears in a tensor, and the tensor's true size.
  void name_layers(PackedTensor& packed) {
    pending_.clear();
    const std::string& native = packed.native;
    if (native == "output") {
      packed.rows = config_.vocabulary;
      packed.columns = hidden();
      push("lm_head", packed, 0, packed.rows);
      return;
    }
    constexpr std::string_view kLayers = "layers.";
    int layer = -1;
    const std::size_t dot = native.find('.', kLayers.size());
    if (native.starts_with(kLayers) && dot != std::string::npos) {
      std::from_chars(
          native.data() + kLayers.size(), native.data() + dot, layer);
    }
    NIBBLE_CHECK(
        layer >= 0 && static_cast<std::size_t>(layer) < config_.layers.size(),
        kUnsupported,
        "tensor {}: found codes, expected them in a linear of one of "
        "{} layers or in the output",
        printable(native),
        config_.layers.size());
    const std::string rest = native.substr(dot + 1);
    const std::string module = fmt::format("model.layers.{}.", layer);
    const std::int64_t query = config_.heads * config_.head_dim;
    const std::int64_t key = config_.kv_heads * config_.head_dim;
    const std::int64_t width =
        config_.layers[static_cast<std::size_t>(layer)].intermediate;
    packed.columns = hidden();
    if (rest == "attention.wqkv") {
      packed.rows = query + 2 * key;
      push(module + "self_attn.q_proj", packed, 0, query, true);
      push(module + "self_attn.k_proj", packed, query, key, true);
      push(module + "self_attn.v_proj", packed, query + key, key);
    } else if (rest == "attention.wo") {
      packed.rows = hidden();
      packed.columns = query;
      push(module + "self_attn.o_proj", packed, 0, packed.rows);
    } else if (rest == "attention.wq" || rest == "attention.wk" ||
               rest == "attention.wv") {
      const char kind = rest.back();
      packed.rows = kind == 'q' ? query : key;
      push(fmt::format("{}self_attn.{}_proj", module, kind),
           packed,
           0,
           packed.rows,
           kind != 'v');
    } else if (rest == "feed_forward.w1" || rest == "feed_forward.w3") {
      packed.rows = width;
      push(module + (rest.back() == '1' ? "mlp.gate_proj" : "mlp.up_proj"),
           packed,
           0,
           width);
    } else if (rest == "feed_forward.w2") {
      packed.rows = hidden();
      packed.columns = width;
      push(module + "mlp.down_proj", packed, 0, packed.rows);
    } else {
      fail(ErrorCode::kUnsupported,
           "tensor {}: found codes of a linear that gpt-fast does not have",
           printable(native));
    }
  }

  void measure_int8(PackedTensor& packed) const {
    const TensorInfo& weight = *packed.weight;
    wrong_type(packed, DType::kI8, "int8");
    NIBBLE_CHECK(weight.shape == Shape({packed.rows, packed.columns}) &&
                     packed.scales->shape == Shape({packed.rows}) &&
                     is_weight_dtype(packed.scales->dtype),
                 kCorruptData,
                 "tensor {}: found codes {} and scales {} {}, expected ({}, "
                 "{}) and ({})",
                 printable(packed.native),
                 to_string(weight.shape),
                 dtype_name(packed.scales->dtype),
                 to_string(packed.scales->shape),
                 packed.rows,
                 packed.columns,
                 packed.rows);
    packed.int8 = true;
  }

  void wrong_type(const PackedTensor& packed,
                  DType expected,
                  std::string_view mode) const {
    if (packed.weight->dtype == expected) {
      return;
    }
    fail_with_hint(
        ErrorCode::kUnsupported,
        fmt::format("quantize the original model again: nibble quantize "
                    "model.pth --layout gpt-fast --recipe {} -o OUT",
                    mode),
        "tensor {}.weight: found {}, expected {} for {}",
        printable(packed.native),
        dtype_name(packed.weight->dtype),
        dtype_name(expected),
        mode);
  }

  void measure_int4(PackedTensor& packed) {
    const Shape& shape = packed.weight->shape;
    const Shape& pairs = packed.scales->shape;
    NIBBLE_CHECK(packed.scales->dtype == DType::kBF16 && pairs.rank() == 3 &&
                     pairs[0] > 0 && pairs[1] == packed.rows && pairs[2] == 2,
                 kCorruptData,
                 "tensor {}.scales_and_zeros: found {} {}, expected BF16 "
                 "(groups, {}, 2)",
                 printable(packed.native),
                 dtype_name(packed.scales->dtype),
                 to_string(pairs),
                 packed.rows);
    if (shape.rank() == 4) {
      wrong_type(packed, DType::kI32, "int4");
      const std::int64_t tiles = shape[3] * 2;
      packed.codes.tiles = tiles;
      packed.codes.columns = shape[1] * 16 * tiles;
      NIBBLE_CHECK(shape[0] * 8 == packed.rows && shape[2] == 32 &&
                       (tiles == 2 || tiles == 4 || tiles == 8),
                   kCorruptData,
                   "tensor {}.weight: found {}, expected ({}, blocks, 32, 1, 2 "
                   "or 4)",
                   printable(packed.native),
                   to_string(shape),
                   packed.rows / 8);
      // PyTorch 2.3 and 2.4 gave CPU bytes this shape, too.
      if (layout_.starts_with("cpu-")) {
        packed.codes.order = order_of_bytes(packed);
      }
    } else {
      wrong_type(packed, DType::kU8, "int4");
      NIBBLE_CHECK(shape.rank() == 2 && shape[0] == packed.rows,
                   kCorruptData,
                   "tensor {}.weight: found {}, expected ({}, columns / 2)",
                   printable(packed.native),
                   to_string(shape),
                   packed.rows);
      packed.codes.order = order_of_bytes(packed);
      packed.codes.columns = shape[1] * 2;
    }
    NIBBLE_CHECK(packed.codes.columns >= packed.columns &&
                     packed.codes.columns % pairs[0] == 0,
                 kCorruptData,
                 "tensor {}.weight: found {} columns in {} groups, expected at "
                 "least {}",
                 printable(packed.native),
                 packed.codes.columns,
                 pairs[0],
                 packed.columns);
    packed.codes.rows = packed.rows;
    packed.group = packed.codes.columns / pairs[0];
  }

  // Nothing in a file tells the byte orders apart.
  Order order_of_bytes(const PackedTensor& packed) {
    layout_used_ = true;
    if (layout_ == "bytes") {
      return Order::kBytes;
    }
    if (layout_ == "cpu-avx512" || layout_ == "cpu-avx2") {
      NIBBLE_CHECK(packed.rows % 16 == 0,
                   kCorruptData,
                   "tensor {}.weight: found {} rows, expected a multiple of 16 "
                   "in a CPU layout",
                   printable(packed.native),
                   packed.rows);
      return layout_ == "cpu-avx512" ? Order::kCpu64 : Order::kCpu32;
    }
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "say which with --int4-layout: bytes (not packed), "
                   "cpu-avx512 or cpu-avx2 (by the processor that packed it)",
                   "tensor {}.weight: found int4 codes as bytes, whose order "
                   "the file does not tell",
                   printable(packed.native));
  }

  static LayerSpec spec_of(const PackedTensor& packed) {
    LayerSpec spec;
    spec.weight.scale_dtype = packed.scales->dtype;
    if (packed.int8) {
      spec.weight.scheme = "int8";
      return spec;
    }
    spec.weight.scheme = "int4";
    spec.weight.bits = 4;
    spec.weight.symmetric = false;
    spec.weight.real_zero = true;
    spec.weight.grain = Grain::kGroup;
    spec.weight.group = packed.group;
    return spec;
  }

  const model::ModelConfig& config_;
  const CheckpointReader& reader_;
  std::string_view layout_;
  bool layout_used_ = false;
  PackedLayers found_;
  std::vector<std::pair<std::string, PackedLayer>> pending_;
};

}  // namespace

PackedLayers find_packed_layers(const model::ModelConfig& config,
                                const CheckpointReader& reader,
                                std::string_view layout) {
  return Finder(config, reader, layout).find();
}

}  // namespace nibble::quant::gpt_fast
