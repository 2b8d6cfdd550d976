#include "nibble/quant/core/format.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/quant/formats/gpt_fast/checkpoint.h"
#include "nibble/quant/formats/gpt_fast/int4_pack.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

using container::TensorInfo;

constexpr std::int64_t kPadding = 1024;

// Columns of the file: padded when the kernel needs it, and then to 1024.
std::int64_t stored_columns(std::int64_t columns,
                            std::int64_t group,
                            std::int64_t tiles) {
  return columns % group == 0 && columns % (16 * tiles) == 0
             ? columns
             : round_up(columns, kPadding);
}

// Code 0..15 of a zero weight in a group, by gpt-fast's arithmetic: what it
// pads with. The floor of its range makes all-zero groups well defined.
std::uint32_t code_of_zero(float scale, float offset) {
  const float least = round_to_bf16(offset - 8 * scale);
  const float quotient = round_to_bf16(-least / scale);
  return static_cast<std::uint32_t>(
      std::clamp(std::nearbyint(quotient), 0.0F, 15.0F));
}

// Scale and offset of a group of zeros only.
constexpr float kLeastRange = 1e-6F;

struct Variant {
  std::string_view name;
  gpt_fast::Order order = gpt_fast::Order::kTiles;
  std::int64_t tiles = 8;  // inner_k_tiles, always 8 in gpt-fast
};

// A module is a linear of gpt-fast ("rank0/layers.0.attention.wqkv").
class GptFastFormat final : public Format {
 public:
  explicit GptFastFormat(const Variant& variant) : variant_(variant) {}

  [[nodiscard]] std::string_view name() const override { return "gpt_fast"; }

  [[nodiscard]] std::unique_ptr<QuantizedCheckpoint> open(
      const nlohmann::json& config,
      const container::CheckpointReader& reader) const override {
    const auto entry = config.find("quantization_config");
    if (entry == config.end() || !entry->is_object() ||
        entry->value("quant_method", "") != "gpt-fast") {
      return nullptr;
    }
    return gpt_fast::open_checkpoint(config, reader);
  }

  [[nodiscard]] const Format* variant(std::string_view name) const override;

  [[nodiscard]] LayerSpec settled(LayerSpec spec,
                                  std::string_view /*module*/,
                                  std::int64_t /*columns*/,
                                  DType /*source*/) const override {
    spec.weight.scale_dtype = DType::kBF16;
    if (spec.weight.scheme == "int4") {
      spec.weight.symmetric = false;
      spec.weight.real_zero = true;
    }
    return spec;
  }

  [[nodiscard]] Encoding reference_encoding(
      const LayerSpec& spec) const override {
    // With float32 scales the exact rule is that of the int8 original.
    return spec.weight.scheme == "int8"
               ? Encoding{Numerics::kExact, DType::kF32}
               : Encoding{Numerics::kReference, DType::kBF16};
  }

  [[nodiscard]] Numbers numbers_in(const LayerSpec& /*spec*/,
                                   const TensorInfo& tensor) const override {
    if (tensor.name.ends_with(".scales_and_zeros")) {
      return Numbers::kPairs;
    }
    return tensor.name.ends_with(".scales") ? Numbers::kScales : Numbers::kAny;
  }

  void check(const LayerSpec& spec,
             std::int64_t rows,
             std::int64_t columns) const override {
    const NumberSpec& weight = spec.weight;
    const bool int8 = weight.scheme == "int8" && weight.symmetric &&
                      weight.grain == Grain::kChannel;
    const bool int4 = weight.scheme == "int4" && weight.real_zero &&
                      (weight.group == 32 || weight.group == 64 ||
                       weight.group == 128 || weight.group == 256);
    NIBBLE_CHECK((int8 || int4) && !spec.input,
                 kUnsupported,
                 "gpt-fast's layout: found {}, expected int8 channel or int4 "
                 "with a real zero in groups of 32, 64, 128 or 256",
                 describe(spec));
    const bool cpu = variant_.order == gpt_fast::Order::kCpu64 ||
                     variant_.order == gpt_fast::Order::kCpu32;
    const std::int64_t multiple = cpu ? 16 : 8;
    NIBBLE_CHECK(int8 || (rows % multiple == 0 && columns % 2 == 0),
                 kUnsupported,
                 "gpt-fast's int4 layout: found {} rows of {}, expected a "
                 "multiple of {} and an even number",
                 rows,
                 columns,
                 multiple);
  }

  [[nodiscard]] std::vector<TensorInfo> plan(
      std::string_view module,
      const LayerSpec& spec,
      std::int64_t rows,
      std::int64_t columns) const override {
    TensorInfo weight;
    weight.name = std::string(module) + ".weight";
    TensorInfo scales;
    scales.dtype = DType::kBF16;
    if (spec.weight.scheme == "int8") {
      weight.dtype = DType::kI8;
      weight.shape = {rows, columns};
      scales.name = std::string(module) + ".scales";
      scales.shape = {rows};
    } else {
      const std::int64_t stored =
          stored_columns(columns, spec.weight.group, variant_.tiles);
      if (variant_.order == gpt_fast::Order::kTiles) {
        weight.dtype = DType::kI32;
        weight.shape = {
            rows / 8, stored / (16 * variant_.tiles), 32, variant_.tiles / 2};
      } else {
        weight.dtype = DType::kU8;
        weight.shape = {rows, stored / 2};
      }
      scales.name = std::string(module) + ".scales_and_zeros";
      scales.shape = {stored / spec.weight.group, rows, 2};
    }
    for (TensorInfo* tensor : {&weight, &scales}) {
      tensor->bytes = static_cast<std::uint64_t>(tensor->shape.elements()) *
                      dtype_bytes(tensor->dtype);
    }
    return {weight, scales};
  }

  void pack(std::string_view module,
            const LayerSpec& spec,
            std::int64_t rows,
            std::int64_t first_row,
            const Quantized& tile,
            const Sink& sink) const override {
    if (spec.weight.scheme == "int8") {
      pack_int8(module, first_row, tile, sink);
    } else {
      pack_int4(module, spec.weight.group, rows, first_row, tile, sink);
    }
  }

  // Scales stand group by group.
  [[nodiscard]] bool scatters_rows() const override { return true; }

  [[nodiscard]] std::int64_t row_multiple() const override {
    return variant_.order == gpt_fast::Order::kTiles ? 8 : 64;
  }

  // Nothing declares the packing but the file itself.
  [[nodiscard]] std::string_view config_key() const override { return ""; }

  [[nodiscard]] nlohmann::json config_entry(
      std::span<const LayerDecision> /*layers*/) const override {
    return nullptr;
  }

 private:
  static void pack_int8(std::string_view module,
                        std::int64_t first_row,
                        const Quantized& tile,
                        const Sink& sink) {
    const std::string name(module);
    sink(name + ".weight",
         static_cast<std::uint64_t>(first_row * tile.columns),
         std::as_const(tile.codes).view().byte_span());
    // gpt-fast chooses codes with float32 scales and stores them as BF16.
    std::vector<float> scales(static_cast<std::size_t>(tile.rows));
    convert_to_float(tile.scales.view(), scales);
    Tensor rounded(DType::kBF16, {tile.rows});
    convert_from_float(scales, rounded.view());
    sink(name + ".scales",
         static_cast<std::uint64_t>(first_row) * 2,
         std::as_const(rounded).view().byte_span());
  }

  void pack_int4(std::string_view module,
                 std::int64_t group,
                 std::int64_t rows,
                 std::int64_t first_row,
                 const Quantized& tile,
                 const Sink& sink) const {
    const std::int64_t stored =
        stored_columns(tile.columns, group, variant_.tiles);
    const std::int64_t groups = stored / group;
    const auto pairs = pairs_of(tile, groups);
    // Tiles begin at whole blocks: what precedes them shifts nothing.
    const gpt_fast::CodeLayout layout{
        variant_.order, rows - first_row, stored, variant_.tiles};
    std::vector<std::uint8_t> bytes(
        static_cast<std::size_t>(tile.rows * stored / 2), 0);
    const auto codes = std::as_const(tile.codes).view().as<std::int8_t>();
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      for (std::int64_t c = 0; c < stored; ++c) {
        std::uint32_t code = 0;
        if (c < tile.columns) {
          code = static_cast<std::uint32_t>(
              codes[static_cast<std::size_t>(r * tile.columns + c)] + 8);
        } else {
          const auto at =
              static_cast<std::size_t>((c / group * tile.rows + r) * 2);
          code = code_of_zero(bf16_to_float(pairs[at]),
                              bf16_to_float(pairs[at + 1]));
        }
        const auto place = gpt_fast::code_place(layout, r, c);
        auto& byte = bytes[static_cast<std::size_t>(place.byte)];
        byte = static_cast<std::uint8_t>(byte | code << place.shift);
      }
    }
    const std::string name(module);
    sink(name + ".weight",
         static_cast<std::uint64_t>(first_row * stored / 2),
         std::as_bytes(std::span(bytes)));
    for (std::int64_t g = 0; g < groups; ++g) {
      sink(name + ".scales_and_zeros",
           static_cast<std::uint64_t>(g * rows + first_row) * 4,
           std::as_bytes(std::span(pairs).subspan(
               static_cast<std::size_t>(g * tile.rows * 2),
               static_cast<std::size_t>(tile.rows * 2))));
    }
  }

  // (groups, rows, 2) BF16 of a tile, groups of padding included.
  static std::vector<std::uint16_t> pairs_of(const Quantized& tile,
                                             std::int64_t groups) {
    const std::int64_t own = tile.scales.shape()[1];
    const auto scales = tile.scales.view().raw<std::uint16_t>();
    const auto zeros = std::as_const(*tile.zeros).view().raw<std::uint16_t>();
    const float padding = round_to_bf16(round_to_bf16(kLeastRange) / 15);
    std::vector<std::uint16_t> pairs(
        static_cast<std::size_t>(groups * tile.rows * 2));
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        const auto to = static_cast<std::size_t>((g * tile.rows + r) * 2);
        const auto from = static_cast<std::size_t>(r * own + g);
        pairs[to] = g < own ? scales[from] : float_to_bf16(padding);
        pairs[to + 1] = g < own ? zeros[from] : float_to_bf16(8 * padding);
      }
    }
    return pairs;
  }

  Variant variant_;
};

const Format* GptFastFormat::variant(std::string_view name) const {
  static const GptFastFormat variants[] = {
      GptFastFormat({"tiles2", gpt_fast::Order::kTiles, 2}),
      GptFastFormat({"tiles4", gpt_fast::Order::kTiles, 4}),
      GptFastFormat({"tiles8", gpt_fast::Order::kTiles, 8}),
      GptFastFormat({"bytes", gpt_fast::Order::kBytes}),
      GptFastFormat({"cpu-avx512", gpt_fast::Order::kCpu64}),
      GptFastFormat({"cpu-avx2", gpt_fast::Order::kCpu32})};
  for (const GptFastFormat& format : variants) {
    if (format.variant_.name == name) {
      return &format;
    }
  }
  return nullptr;
}

}  // namespace

const Format& gpt_fast_format() {
  static const GptFastFormat format{Variant{}};
  return format;
}

}  // namespace nibble::quant
