#include "nibble/quant/formats/meta/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/quant/formats/meta/layers.h"
#include "nibble/quant/formats/meta/nibbles.h"

namespace nibble::quant::meta {
namespace {

using container::CheckpointReader;

// Rows of one rank, and where they go in a joined tile.
struct RankRows {
  std::size_t rank = 0;
  std::int64_t first = 0;  // output inside the rank
  std::int64_t count = 0;
  std::int64_t to_row = 0;
  std::int64_t to_column = 0;
  std::int64_t to_group = 0;  // of the scales
};

class MetaCheckpoint final : public QuantizedCheckpoint {
 public:
  MetaCheckpoint(std::string mode,
                 std::size_t ranks,
                 PackedLayers layers,
                 const CheckpointReader& reader)
      : mode_(std::move(mode)),
        ranks_(static_cast<std::int64_t>(ranks)),
        layers_(std::move(layers)),
        reader_(reader) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("meta {} of {} ranks", mode_, ranks_);
  }

  [[nodiscard]] std::optional<LayerSpec> spec_of(
      std::string_view module) const override {
    if (const StoredLayer* stored = stored_layer(module)) {
      return stored->spec;
    }
    const auto found = layers_.layers.find(module);
    return found == layers_.layers.end() ? std::nullopt
                                         : std::optional(found->second.spec);
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
    for (const auto& [name, layer] : layers_.stored) {
      names.push_back(name);
    }
    return names;
  }

  [[nodiscard]] Shape weight_shape(std::string_view module) const override {
    if (const StoredLayer* stored = stored_layer(module)) {
      const PackedTensor& tensor = *stored->tensor;
      return {tensor.rank_rows, tensor.rank_columns};
    }
    const PackedTensor& tensor = *layer(module).tensor;
    return {tensor.rows, tensor.columns};
  }

  [[nodiscard]] std::vector<std::string> tensors_of(
      std::string_view module) const override {
    if (const StoredLayer* stored = stored_layer(module)) {
      return {stored->tensor->weights[stored->rank]->name,
              stored->tensor->scales[stored->rank]->name};
    }
    const PackedTensor& tensor = *layer(module).tensor;
    std::vector<std::string> names;
    for (std::size_t rank = 0; rank < tensor.weights.size(); ++rank) {
      names.push_back(tensor.weights[rank]->name);
      names.push_back(tensor.scales[rank]->name);
    }
    return names;
  }

  [[nodiscard]] std::optional<Tensor> input_scale(
      std::string_view /*module*/) const override {
    return std::nullopt;
  }

  [[nodiscard]] Quantized unpack(std::string_view module,
                                 std::int64_t first,
                                 std::int64_t count) const override {
    if (const StoredLayer* stored = stored_layer(module)) {
      const PackedTensor& tensor = *stored->tensor;
      Quantized tile =
          empty_tile(stored->spec.weight, count, tensor.rank_columns);
      const RankRows rows{stored->rank, first, count};
      unpack_codes(tensor, stored->expert, rows, tile);
      unpack_scales(tensor, stored->expert, rows, tile);
      return tile;
    }
    const PackedLayer& packed = layer(module);
    const PackedTensor& tensor = *packed.tensor;
    Quantized tile = empty_tile(packed.spec.weight, count, tensor.columns);
    for (const RankRows& rows : split(tensor, first, count)) {
      unpack_codes(tensor, packed.expert, rows, tile);
      unpack_scales(tensor, packed.expert, rows, tile);
    }
    return tile;
  }

 private:
  [[nodiscard]] const PackedLayer& layer(std::string_view module) const {
    const auto found = layers_.layers.find(module);
    NIBBLE_CHECK(found != layers_.layers.end(),
                 kNotFound,
                 "module {}: found no packed weights",
                 printable(module));
    return found->second;
  }

  // nullptr for the name of a linear of the model.
  [[nodiscard]] const StoredLayer* stored_layer(std::string_view module) const {
    const auto found = layers_.stored.find(module);
    return found == layers_.stored.end() ? nullptr : &found->second;
  }

  static Quantized empty_tile(const NumberSpec& spec,
                              std::int64_t rows,
                              std::int64_t columns) {
    Quantized tile;
    tile.spec = spec;
    tile.rows = rows;
    tile.columns = columns;
    tile.codes =
        Tensor(spec.floating ? DType::kF8E4M3 : DType::kI8, {rows, columns});
    const ScaleGrid grid = scale_grid(spec, rows, columns);
    tile.scales = Tensor(DType::kF32, {grid.rows, grid.columns});
    return tile;
  }

  [[nodiscard]] std::vector<RankRows> split(const PackedTensor& tensor,
                                            std::int64_t first,
                                            std::int64_t count) const {
    std::vector<RankRows> parts;
    const std::int64_t outputs = tensor.rank_rows;
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      if (tensor.cut_inputs) {
        parts.push_back({static_cast<std::size_t>(rank),
                         first,
                         count,
                         0,
                         rank * tensor.rank_columns,
                         rank * tensor.groups});
        continue;
      }
      const std::int64_t begin = std::max(first, rank * outputs);
      const std::int64_t end = std::min(first + count, (rank + 1) * outputs);
      if (begin < end) {
        parts.push_back({static_cast<std::size_t>(rank),
                         begin - rank * outputs,
                         end - begin,
                         begin - first,
                         0,
                         0});
      }
    }
    return parts;
  }

  // Bytes [offset, offset + bytes) of a tensor.
  [[nodiscard]] std::vector<std::byte> read(const container::TensorInfo& tensor,
                                            std::int64_t offset,
                                            std::int64_t bytes) const {
    std::vector<std::byte> data(static_cast<std::size_t>(bytes));
    reader_.read(tensor, static_cast<std::uint64_t>(offset), data);
    return data;
  }

  void unpack_codes(const PackedTensor& tensor,
                    std::int64_t expert,
                    const RankRows& rows,
                    Quantized& tile) const {
    const std::int64_t inputs = tensor.rank_columns;
    const std::int64_t outputs = tensor.rank_rows;
    const bool nibbles = tensor.packing == Packing::kInt4;
    const std::int64_t lines = nibbles ? inputs / 2 : inputs;
    // Input-major: line l holds input(s) l of every output.
    const auto data = tensor.stacked ? read(*tensor.weights[rows.rank],
                                            expert * lines * outputs,
                                            lines * outputs)
                                     : read(*tensor.weights[rows.rank],
                                            rows.first * lines,
                                            rows.count * lines);
    auto* codes = tile.codes.view().raw<std::uint8_t>().data();
    for (std::int64_t r = 0; r < rows.count; ++r) {
      auto* to = codes + (rows.to_row + r) * tile.columns + rows.to_column;
      const std::int64_t from = tensor.stacked ? rows.first + r : r * lines;
      const std::int64_t step = tensor.stacked ? outputs : 1;
      for (std::int64_t l = 0; l < lines; ++l) {
        const auto byte = std::to_integer<std::uint8_t>(
            data[static_cast<std::size_t>(from + l * step)]);
        if (nibbles) {
          to[2 * l] = low_code(byte);
          to[2 * l + 1] = high_code(byte);
        } else {
          NIBBLE_CHECK((byte & 0x7F) != 0x7F,
                       kCorruptData,
                       "tensor {}: found NaN at output {} of expert {}",
                       printable(tensor.weights[rows.rank]->name),
                       rows.first + r,
                       expert);
          to[l] = byte;
        }
      }
    }
  }

  // Scales stand group by group: (groups of an expert, outputs).
  void unpack_scales(const PackedTensor& tensor,
                     std::int64_t expert,
                     const RankRows& rows,
                     Quantized& tile) const {
    const std::int64_t outputs = tensor.rank_rows;
    const std::int64_t groups = tensor.groups;
    const std::int64_t width = tile.scales.shape()[1];
    auto* scales = tile.scales.view().as<float>().data();
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto line = read(*tensor.scales[rows.rank],
                             ((expert * groups + g) * outputs + rows.first) * 4,
                             rows.count * 4);
      for (std::int64_t r = 0; r < rows.count; ++r) {
        float scale = 0;
        std::memcpy(&scale, line.data() + r * 4, sizeof(scale));
        NIBBLE_CHECK(std::isfinite(scale) && scale > 0,
                     kCorruptData,
                     "scales {}: found {} at output {}, group {} of expert {}, "
                     "expected a finite number above zero",
                     printable(tensor.scales[rows.rank]->name),
                     scale,
                     rows.first + r,
                     g,
                     expert);
        scales[(rows.to_row + r) * width + rows.to_group + g] = scale;
      }
    }
  }

  std::string mode_;
  std::int64_t ranks_;
  PackedLayers layers_;
  const CheckpointReader& reader_;
};

}  // namespace

std::unique_ptr<QuantizedCheckpoint> open_checkpoint(
    const nlohmann::json& config, const CheckpointReader& reader) {
  const nlohmann::json& entry = config["quantization_config"];
  const auto ranks = entry.at("ranks").get<std::size_t>();
  return std::make_unique<MetaCheckpoint>(
      entry.at("mode").get<std::string>(),
      ranks,
      find_packed_layers(model::parse_config(config), reader, ranks),
      reader);
}

}  // namespace nibble::quant::meta
