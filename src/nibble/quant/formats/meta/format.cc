#include "nibble/quant/core/format.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/quant/core/mixed_spec.h"
#include "nibble/quant/formats/meta/checkpoint.h"
#include "nibble/quant/formats/meta/layers.h"
#include "nibble/quant/formats/meta/nibbles.h"
#include "nibble/quant/formats/meta/shard_module.h"

namespace nibble::quant {
namespace {

using container::TensorInfo;
using meta::ShardModule;

bool is_int4(const LayerSpec& spec) {
  return spec.weight.scheme == "int4";
}

std::string scales_of(const ShardModule& shard, const LayerSpec& spec) {
  const auto packing =
      is_int4(spec) ? meta::Packing::kInt4 : meta::Packing::kFp8;
  return fmt::format("rank{}/scales/{}{}",
                     shard.rank,
                     meta::scale_key(shard.native, shard.rank, packing),
                     shard.part);
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

  [[nodiscard]] LayerSpec settled(LayerSpec spec,
                                  std::string_view module,
                                  std::int64_t columns,
                                  DType /*source*/) const override {
    spec.weight.scale_dtype = DType::kF32;
    if (is_int4(spec)) {
      spec.weight.group = with_context(
          printable(module), [&] { return int4_mixed_group(columns); });
    }
    return spec;
  }

  void check(const LayerSpec& spec,
             std::int64_t /*rows*/,
             std::int64_t columns) const override {
    const NumberSpec& weight = spec.weight;
    const bool int4 = is_int4(spec) && weight.grain == Grain::kGroup;
    const bool fp8 =
        weight.scheme == "fp8" &&
        (weight.grain == Grain::kChannel ||
         (weight.grain == Grain::kBlock && weight.block_rows == 1));
    NIBBLE_CHECK((int4 || fp8) && weight.symmetric && columns % 2 == 0 &&
                     weight.scale_dtype == DType::kF32 && !spec.input,
                 kUnsupported,
                 "Meta's layout: found {}, expected int4 in groups or fp8 with "
                 "a scale for each output of an expert",
                 describe(spec));
  }

  [[nodiscard]] Encoding reference_encoding(
      const LayerSpec& /*spec*/) const override {
    return {Numerics::kMeta, DType::kF32};
  }

  [[nodiscard]] Numbers numbers_in(const LayerSpec& spec,
                                   const TensorInfo& tensor) const override {
    if (tensor.dtype == DType::kF32) {
      return Numbers::kScales;
    }
    // The bytes of int4 only look like floating point.
    return is_int4(spec) ? Numbers::kAny : Numbers::kFp8Codes;
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
    weight.name = module;
    weight.dtype = DType::kF8E4M3;
    weight.shape =
        shard.stacked() ? Shape({packed, rows}) : Shape({rows, packed});
    weight.bytes = static_cast<std::uint64_t>(packed * rows);
    TensorInfo scales;
    scales.name = scales_of(shard, spec);
    scales.dtype = DType::kF32;
    // fp8 has an axis of groups only where ranks were joined.
    const bool grouped = is_int4(spec) || groups > 1;
    if (shard.stacked()) {
      scales.shape = grouped ? Shape({1, groups, rows}) : Shape({1, rows});
    } else {
      scales.shape = grouped ? Shape({groups, rows}) : Shape({rows});
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
    const std::string name(module);
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
        static_cast<std::size_t>(shard.stacked() ? tile.rows : lines));
    if (shard.stacked()) {
      for (std::int64_t line = 0; line < lines; ++line) {
        for (std::int64_t r = 0; r < tile.rows; ++r) {
          bytes[static_cast<std::size_t>(r)] = code(r, line);
        }
        sink(name,
             static_cast<std::uint64_t>(line * rows + first_row),
             std::as_bytes(std::span(bytes)));
      }
    } else {
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        for (std::int64_t line = 0; line < lines; ++line) {
          bytes[static_cast<std::size_t>(line)] = code(r, line);
        }
        sink(name,
             static_cast<std::uint64_t>((first_row + r) * lines),
             std::as_bytes(std::span(bytes)));
      }
    }
    pack_scales(scales_of(shard, spec), rows, first_row, tile, sink);
  }

  // Outputs of an input-major stack lie side by side, and scales of any.
  [[nodiscard]] bool scatters_rows() const override { return true; }

  // Nothing declares the packing but the files themselves.
  [[nodiscard]] std::string_view config_key() const override { return ""; }

  [[nodiscard]] nlohmann::json config_entry(
      std::span<const LayerDecision> /*layers*/) const override {
    return nullptr;
  }

 private:
  // (outputs, groups) becomes (groups, outputs).
  static void pack_scales(const std::string& name,
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
      sink(name,
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
