#include "nibble/quant/formats/compressed_tensors/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/quant/formats/compressed_tensors/bits/bits.h"
#include "nibble/quant/formats/compressed_tensors/config/declaration.h"
#include "nibble/quant/formats/compressed_tensors/modules.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant::compressed_tensors {
namespace {

using container::CheckpointReader;
using container::TensorInfo;

// Scales of a tile, first row of the grid at first. They must be usable: a
// NaN or zero spreads silently into every output.
void check_scales(ConstTensorView scales,
                  std::int64_t first,
                  const TensorInfo& tensor) {
  std::vector<float> values(static_cast<std::size_t>(scales.elements()));
  convert_to_float(scales, values);
  const auto bad = std::find_if(values.begin(), values.end(), [](float value) {
    return !(value > 0.0F && std::isfinite(value));
  });
  if (bad == values.end()) {
    return;
  }
  const std::int64_t index = bad - values.begin();
  fail(ErrorCode::kCorruptData,
       "tensor {}: found the scale {} at ({}, {}), expected a finite one "
       "above 0",
       printable(tensor.name),
       *bad,
       first + index / scales.dim(1),
       index % scales.dim(1));
}

// Codes of narrow integers that are stored a byte each must keep their range,
// FP8 codes must be numbers.
void check_codes(ConstTensorView codes,
                 const NumberSpec& spec,
                 std::int64_t first,
                 const TensorInfo& tensor) {
  const auto bytes = codes.raw<std::uint8_t>();
  auto bad = bytes.end();
  if (spec.floating) {
    bad = std::find_if(bytes.begin(), bytes.end(), [](std::uint8_t code) {
      return (code & 0x7FU) == 0x7FU;
    });
  } else if (spec.bits < 8) {
    const int half = 1 << (spec.bits - 1);
    bad = std::find_if(bytes.begin(), bytes.end(), [half](std::uint8_t code) {
      const int value = static_cast<std::int8_t>(code);
      return value < -half || value >= half;
    });
  }
  if (bad == bytes.end()) {
    return;
  }
  const std::int64_t index = bad - bytes.begin();
  fail(ErrorCode::kCorruptData,
       "tensor {}: found the byte 0x{:02X} at ({}, {}), expected {}",
       printable(tensor.name),
       *bad,
       first + index / codes.dim(1),
       index % codes.dim(1),
       spec.floating ? std::string("a number (this is NaN)")
                     : fmt::format("a code of {} bits", spec.bits));
}

class Opened final : public QuantizedCheckpoint {
 public:
  Opened(Declaration declaration, const CheckpointReader& reader)
      : reader_(reader), modules_(find_modules(declaration, reader)) {
    std::set<std::string> words;
    for (const Group& group : declaration.groups) {
      if (group.spec) {
        words.insert(group.format);
      }
    }
    description_ = fmt::format("compressed-tensors {}", fmt::join(words, ", "));
  }

  std::string description() const override { return description_; }

  std::optional<LayerSpec> spec_of(std::string_view module) const override {
    const auto found = modules_.find(module);
    return found == modules_.end() ? std::nullopt
                                   : std::optional(found->second.spec);
  }

  std::vector<std::string> modules() const override {
    std::vector<std::string> names;
    for (const auto& [name, module] : modules_) {
      names.push_back(name);
    }
    return names;
  }

  Shape weight_shape(std::string_view name) const override {
    const Module& module = get(name);
    return {module.rows, module.columns};
  }

  std::vector<std::string> tensors_of(std::string_view name) const override {
    const Module& module = get(name);
    std::vector<std::string> names;
    for (const TensorInfo* tensor : {module.codes,
                                     module.scales,
                                     module.shape,
                                     module.zeros,
                                     module.input_scale}) {
      if (tensor != nullptr) {
        names.push_back(tensor->name);
      }
    }
    return names;
  }

  Quantized unpack(std::string_view name,
                   std::int64_t first,
                   std::int64_t count) const override {
    const Module& module = get(name);
    NIBBLE_CHECK(first >= 0 && first % 128 == 0 && count > 0 &&
                     first <= module.rows && count <= module.rows - first,
                 kInvalidArgument,
                 "module {}: found rows [{}, {} + {}), expected a part of {} "
                 "that begins at a multiple of 128",
                 printable(name),
                 first,
                 first,
                 count,
                 module.rows);
    Quantized tile;
    tile.spec = module.spec.weight;
    tile.rows = count;
    tile.columns = module.columns;
    tile.codes = unpack_codes(module, first, count);
    tile.scales = read_scales(module, first, count);
    if (module.zeros != nullptr) {
      tile.zeros = unpack_zeros(module, first, count);
    }
    return tile;
  }

  std::optional<Tensor> input_scale(std::string_view name) const override {
    const Module& module = get(name);
    if (module.input_scale == nullptr) {
      return std::nullopt;
    }
    Tensor scale(module.input_scale->dtype, {1});
    reader_.read(*module.input_scale, 0, scale.view().byte_span());
    check_scales(
        {scale.view().data(), scale.dtype(), {1, 1}}, 0, *module.input_scale);
    return scale;
  }

 private:
  const Module& get(std::string_view name) const {
    const auto found = modules_.find(name);
    NIBBLE_CHECK(found != modules_.end(),
                 kNotFound,
                 "module {}: found no quantized module of that name",
                 printable(name));
    return found->second;
  }

  // Rows [first, first + count) of a tensor with `width` elements a row.
  void read_rows(const TensorInfo& tensor,
                 std::int64_t width,
                 std::int64_t first,
                 std::span<std::byte> out) const {
    const auto row_bytes =
        static_cast<std::uint64_t>(width) * dtype_bytes(tensor.dtype);
    reader_.read(tensor, static_cast<std::uint64_t>(first) * row_bytes, out);
  }

  Tensor unpack_codes(const Module& module,
                      std::int64_t first,
                      std::int64_t count) const {
    const NumberSpec& spec = module.spec.weight;
    Tensor codes(spec.floating ? DType::kF8E4M3 : DType::kI8,
                 {count, module.columns});
    if (module.storage == Storage::kPlain) {
      read_rows(*module.codes, module.columns, first, codes.view().byte_span());
      check_codes(codes.view(), spec, first, *module.codes);
      return codes;
    }
    const std::int64_t words = words_for(module.columns, spec.bits);
    Tensor packed(DType::kI32, {count, words});
    read_rows(*module.codes, words, first, packed.view().byte_span());
    const auto out = codes.view().as<std::int8_t>();
    for (std::int64_t row = 0; row < count; ++row) {
      unpack_row(packed.view().rows(row, 1).byte_span(),
                 spec.bits,
                 out.subspan(static_cast<std::size_t>(row * module.columns),
                             static_cast<std::size_t>(module.columns)));
    }
    return codes;
  }

  Tensor read_scales(const Module& module,
                     std::int64_t first,
                     std::int64_t count) const {
    const ScaleGrid grid =
        scale_grid(module.spec.weight, count, module.columns);
    const bool whole = module.spec.weight.grain == Grain::kTensor;
    const std::int64_t first_row = whole ? 0 : first / grid.rows_per_scale;
    Tensor scales(module.scales->dtype, {grid.rows, grid.columns});
    read_rows(
        *module.scales, grid.columns, first_row, scales.view().byte_span());
    check_scales(scales.view(), first_row, *module.scales);
    return scales;
  }

  Tensor unpack_zeros(const Module& module,
                      std::int64_t first,
                      std::int64_t count) const {
    const NumberSpec& spec = module.spec.weight;
    const ScaleGrid grid = scale_grid(spec, count, module.columns);
    Tensor zeros(DType::kI8, {grid.rows, grid.columns});
    if (module.storage == Storage::kPlain) {
      const bool whole = spec.grain == Grain::kTensor;
      read_rows(*module.zeros,
                grid.columns,
                whole ? 0 : first,
                zeros.view().byte_span());
      check_codes(zeros.view(), spec, first, *module.zeros);
      return zeros;
    }
    // first is a multiple of 128, so it begins a word.
    const std::int64_t words = words_for(count, spec.bits);
    Tensor packed(DType::kI32, {words, grid.columns});
    read_rows(*module.zeros,
              grid.columns,
              first / (32 / spec.bits),
              packed.view().byte_span());
    unpack_columns(packed.view().byte_span(),
                   grid.columns,
                   spec.bits,
                   zeros.view().as<std::int8_t>());
    return zeros;
  }

  const CheckpointReader& reader_;
  Modules modules_;
  std::string description_;
};

}  // namespace

std::unique_ptr<QuantizedCheckpoint> open_checkpoint(
    const nlohmann::json& entry, const CheckpointReader& reader) {
  return std::make_unique<Opened>(parse_declaration(entry), reader);
}

}  // namespace nibble::quant::compressed_tensors
