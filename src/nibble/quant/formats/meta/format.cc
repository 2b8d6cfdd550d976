#include "nibble/quant/core/format.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/quant/formats/meta/checkpoint.h"
#include "nibble/quant/formats/meta/nibbles.h"
#include "nibble/quant/formats/meta/shard_module.h"

namespace nibble::quant {
namespace {

using container::TensorInfo;
using meta::ShardModule;

bool is_int4(const LayerSpec& spec) {
  return spec.weight.scheme == "int4";
}

// Writes rank by rank: a module is a packed tensor of one rank
// (shard_module.h). Stacks are one matrix whose inputs are those of all
// experts, one after the other.
class MetaFormat final : public Format {
 public:
  [[nodiscard]] std::string_view name() const override { return "meta"; }

  [[nodiscard]] std::unique_ptr<QuantizedCheckpoint> open(
      const nlohmann::json& config,
      const container::CheckpointReader& reader) const override {
    const auto entry = config.find("quantization_config");
    if (entry == config.end() || !entry->is_object() ||
        entry->value("quant_method", "") != "meta") {
      return nullptr;
    }
    return meta::open_checkpoint(config, reader);
  }

  void check(const LayerSpec& spec,
             std::int64_t /*rows*/,
             std::int64_t columns) const override {
    const NumberSpec& weight = spec.weight;
    const bool int4 =
        is_int4(spec) && weight.grain == Grain::kGroup && weight.group == 128;
    const bool fp8 = weight.scheme == "fp8" && weight.grain == Grain::kBlock &&
                     weight.block_rows == 1;
    NIBBLE_CHECK((int4 || fp8) && weight.symmetric && columns % 2 == 0 &&
                     weight.scale_dtype == DType::kF32,
                 kUnsupported,
                 "Meta's layout: found {}, expected int4 group 128 or fp8 with "
                 "a scale for each output of an expert",
                 describe(spec));
  }

  [[nodiscard]] std::vector<TensorInfo> plan(
      std::string_view module,
      const LayerSpec& spec,
      std::int64_t rows,
      std::int64_t columns) const override {
    const ShardModule shard = ShardModule::parse(module);
    const std::int64_t packed = is_int4(spec) ? columns / 2 : columns;
    const std::int64_t groups = scale_grid(spec.weight, 1, columns).columns;
    TensorInfo weight;
    weight.name = shard.tensor;
    weight.dtype = DType::kF8E4M3;
    weight.shape =
        shard.stacked ? Shape({packed, rows}) : Shape({rows, packed});
    weight.bytes = static_cast<std::uint64_t>(packed * rows);
    TensorInfo scales;
    scales.name = shard.scales;
    scales.dtype = DType::kF32;
    if (is_int4(spec)) {
      scales.shape = shard.stacked
                         ? Shape({shard.experts, groups / shard.experts, rows})
                         : Shape({groups, rows});
    } else {
      scales.shape =
          shard.stacked ? Shape({shard.experts, rows}) : Shape({rows});
    }
    scales.bytes = static_cast<std::uint64_t>(groups * rows) * 4;
    return {weight, scales};
  }

  void pack(std::string_view module,
            const LayerSpec& spec,
            std::int64_t rows,
            std::int64_t first_row,
            const Quantized& tile,
            const Sink& sink) const override {
    const ShardModule shard = ShardModule::parse(module);
    const bool nibbles = is_int4(spec);
    const std::int64_t lines = nibbles ? tile.columns / 2 : tile.columns;
    const auto codes = std::as_const(tile.codes).view().raw<std::uint8_t>();
    const auto code = [&](std::int64_t row, std::int64_t line) {
      const auto* at = codes.data() + row * tile.columns;
      return nibbles
                 ? meta::pack_codes(static_cast<std::int8_t>(at[2 * line]),
                                    static_cast<std::int8_t>(at[2 * line + 1]))
                 : at[line];
    };
    std::vector<std::uint8_t> bytes(
        static_cast<std::size_t>(shard.stacked ? tile.rows : lines));
    if (shard.stacked) {
      for (std::int64_t line = 0; line < lines; ++line) {
        for (std::int64_t r = 0; r < tile.rows; ++r) {
          bytes[static_cast<std::size_t>(r)] = code(r, line);
        }
        sink(shard.tensor,
             static_cast<std::uint64_t>(line * rows + first_row),
             std::as_bytes(std::span(bytes)));
      }
    } else {
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        for (std::int64_t line = 0; line < lines; ++line) {
          bytes[static_cast<std::size_t>(line)] = code(r, line);
        }
        sink(shard.tensor,
             static_cast<std::uint64_t>((first_row + r) * lines),
             std::as_bytes(std::span(bytes)));
      }
    }
    pack_scales(shard, rows, first_row, tile, sink);
  }

  // Outputs of an input-major stack lie side by side.
  [[nodiscard]] std::int64_t row_multiple() const override { return 16; }

  // Nothing declares the packing but the files themselves.
  [[nodiscard]] std::string_view config_key() const override { return ""; }

  [[nodiscard]] nlohmann::json config_entry(
      std::span<const LayerDecision> /*layers*/) const override {
    return nullptr;
  }

 private:
  // (outputs, groups) becomes (groups, outputs).
  static void pack_scales(const ShardModule& shard,
                          std::int64_t rows,
                          std::int64_t first_row,
                          const Quantized& tile,
                          const Sink& sink) {
    const auto scales = std::as_const(tile.scales).view().as<float>();
    const std::int64_t groups = tile.scales.shape()[1];
    std::vector<float> line(static_cast<std::size_t>(tile.rows));
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        line[static_cast<std::size_t>(r)] =
            scales[static_cast<std::size_t>(r * groups + g)];
      }
      sink(shard.scales,
           static_cast<std::uint64_t>(g * rows + first_row) * 4,
           std::as_bytes(std::span(line)));
    }
  }
};

}  // namespace

const Format& meta_format() {
  static const MetaFormat format;
  return format;
}

}  // namespace nibble::quant
