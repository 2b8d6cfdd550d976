#include "nibble/quant/formats/gpt_fast/checkpoint.h"

#include <cmath>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/quant/formats/gpt_fast/layers.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant::gpt_fast {
namespace {

using container::CheckpointReader;

class GptFastCheckpoint final : public QuantizedCheckpoint {
 public:
  GptFastCheckpoint(PackedLayers layers, const CheckpointReader& reader)
      : layers_(std::move(layers)), reader_(reader) {}

  [[nodiscard]] std::string description() const override {
    const bool int8 = layers_.tensors.begin()->second.int8;
    return int8 ? "gpt-fast int8" : "gpt-fast int4";
  }

  [[nodiscard]] std::optional<LayerSpec> spec_of(
      std::string_view module) const override {
    const std::optional<PackedLayer> layer = find(module);
    return layer ? std::optional(tensor_of(*layer).spec) : std::nullopt;
  }

  [[nodiscard]] std::vector<std::string> modules() const override {
    std::vector<std::string> names;
    for (const auto& [name, layer] : layers_.layers) {
      names.push_back(name);
    }
    return names;
  }

  [[nodiscard]] std::vector<std::string> stored_modules() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : layers_.tensors) {
      names.push_back(std::string(kRank) + name);
    }
    return names;
  }

  [[nodiscard]] Shape weight_shape(std::string_view module) const override {
    const PackedLayer layer = get(module);
    return {layer.rows, tensor_of(layer).columns};
  }

  [[nodiscard]] std::vector<std::string> tensors_of(
      std::string_view module) const override {
    const PackedTensor& tensor = tensor_of(get(module));
    return {tensor.weight->name, tensor.scales->name};
  }

  [[nodiscard]] std::optional<Tensor> input_scale(
      std::string_view /*module*/) const override {
    return std::nullopt;
  }

  [[nodiscard]] Quantized unpack(std::string_view module,
                                 std::int64_t first,
                                 std::int64_t count) const override {
    const PackedLayer layer = get(module);
    const PackedTensor& packed = tensor_of(layer);
    Quantized tile;
    tile.spec = packed.spec.weight;
    tile.rows = count;
    tile.columns = packed.columns;
    tile.codes = Tensor(DType::kI8, {count, packed.columns});
    const ScaleGrid grid = scale_grid(tile.spec, count, packed.columns);
    tile.scales = Tensor(tile.spec.scale_dtype, {count, grid.columns});
    if (tile.spec.real_zero) {
      tile.zeros = Tensor(DType::kBF16, {count, grid.columns});
    }
    const Tensor weight = reader_.load(*packed.weight);
    const Tensor scales = reader_.load(*packed.scales);
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t row = native_row(layer, first + r);
      unpack_codes(packed, weight.view(), row, r, tile);
      if (tile.spec.real_zero) {
        unpack_pairs(packed, scales.view(), row, r, tile);
      } else {
        unpack_scale(packed, scales.view(), row, r, tile);
      }
    }
    return tile;
  }

 private:
  static constexpr std::string_view kRank = "rank0/";

  // By the name of a linear of the model, or of the file.
  [[nodiscard]] std::optional<PackedLayer> find(std::string_view module) const {
    const auto layer = layers_.layers.find(module);
    if (layer != layers_.layers.end()) {
      return layer->second;
    }
    if (!module.starts_with(kRank)) {
      return std::nullopt;
    }
    const auto tensor = layers_.tensors.find(module.substr(kRank.size()));
    return tensor == layers_.tensors.end()
               ? std::nullopt
               : std::optional(
                     PackedLayer{tensor->first, 0, tensor->second.rows, false});
  }

  [[nodiscard]] PackedLayer get(std::string_view module) const {
    std::optional<PackedLayer> layer = find(module);
    NIBBLE_CHECK(layer.has_value(),
                 kNotFound,
                 "module {}: found no packed weights",
                 printable(module));
    return *std::move(layer);
  }

  [[nodiscard]] const PackedTensor& tensor_of(const PackedLayer& layer) const {
    return layers_.tensors.find(layer.native)->second;
  }

  // Row of the packed tensor that holds a row of the model's linear.
  [[nodiscard]] std::int64_t native_row(const PackedLayer& layer,
                                        std::int64_t row) const {
    return layer.first +
           (layer.rotary ? model::row_of_pair(row, layers_.head_dim) : row);
  }

  static void unpack_codes(const PackedTensor& packed,
                           ConstTensorView weight,
                           std::int64_t row,
                           std::int64_t to_row,
                           Quantized& tile) {
    auto* codes =
        tile.codes.view().as<std::int8_t>().data() + to_row * tile.columns;
    if (packed.int8) {
      std::memcpy(codes,
                  weight.data() + row * packed.columns,
                  static_cast<std::size_t>(packed.columns));
      return;
    }
    for (std::int64_t c = 0; c < tile.columns; ++c) {
      const CodePlace place = code_place(packed.codes, row, c);
      const auto byte = std::to_integer<int>(weight.data()[place.byte]);
      codes[c] = static_cast<std::int8_t>((byte >> place.shift & 15) - 8);
    }
  }

  static void check_number(const PackedTensor& packed,
                           float value,
                           std::int64_t row,
                           bool scale) {
    NIBBLE_CHECK(std::isfinite(value) && (!scale || value > 0),
                 kCorruptData,
                 "tensor {}: found {} {} at row {}, expected a finite number{}",
                 printable(packed.scales->name),
                 scale ? "scale" : "zero",
                 value,
                 row,
                 scale ? " above zero" : "");
  }

  static void unpack_pairs(const PackedTensor& packed,
                           ConstTensorView pairs,
                           std::int64_t row,
                           std::int64_t to_row,
                           Quantized& tile) {
    const auto bits = pairs.raw<std::uint16_t>();
    const std::int64_t groups = tile.scales.shape()[1];
    const auto scales = tile.scales.view().raw<std::uint16_t>();
    const auto zeros = tile.zeros->view().raw<std::uint16_t>();
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto from = static_cast<std::size_t>((g * packed.rows + row) * 2);
      const auto to = static_cast<std::size_t>(to_row * groups + g);
      scales[to] = bits[from];
      zeros[to] = bits[from + 1];
      check_number(packed, bf16_to_float(bits[from]), row, true);
      check_number(packed, bf16_to_float(bits[from + 1]), row, false);
    }
  }

  static void unpack_scale(const PackedTensor& packed,
                           ConstTensorView scales,
                           std::int64_t row,
                           std::int64_t to_row,
                           Quantized& tile) {
    const ConstTensorView scale = scales.rows(row, 1);
    float value = 0;
    convert_to_float(scale, std::span(&value, 1));
    check_number(packed, value, row, true);
    std::memcpy(
        tile.scales.view().rows(to_row, 1).data(), scale.data(), scale.bytes());
  }

  PackedLayers layers_;
  const CheckpointReader& reader_;
};

}  // namespace

std::unique_ptr<QuantizedCheckpoint> open_checkpoint(
    const nlohmann::json& config, const CheckpointReader& reader) {
  const nlohmann::json& entry = config["quantization_config"];
  return std::make_unique<GptFastCheckpoint>(
      find_packed_layers(
          model::parse_config(config), reader, entry.value("int4_layout", "")),
      reader);
}

}  // namespace nibble::quant::gpt_fast
