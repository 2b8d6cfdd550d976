#include "nibble/quant/formats/compressed_tensors/config/layout.h"

#include "nibble/base/error.h"
#include "nibble/quant/formats/compressed_tensors/bits/bits.h"

namespace nibble::quant::compressed_tensors {
namespace {

// The most rows a block may have; more would make larger tiles than are
// planned.
constexpr std::int64_t kMostBlockRows = 128;

void check_input(const NumberSpec& weight, const NumberSpec& input) {
  NIBBLE_CHECK(input.floating == weight.floating && input.bits == 8,
               kUnsupported,
               "compressed-tensors: found {} weights with {} inputs, expected "
               "int8 inputs for integer weights and fp8 inputs for fp8",
               weight.scheme,
               input.scheme);
  NIBBLE_CHECK(input.grain == Grain::kToken || input.grain == Grain::kGroup ||
                   input.grain == Grain::kTensor,
               kUnsupported,
               "compressed-tensors: found inputs with a scale a {}, expected "
               "one a token, group or tensor",
               grain_name(input.grain));
  NIBBLE_CHECK(input.symmetric || input.grain != Grain::kTensor,
               kUnsupported,
               "compressed-tensors: found static asymmetric inputs, expected "
               "symmetric ones");
}

void check_weight(const LayerSpec& spec,
                  std::int64_t rows,
                  std::int64_t columns) {
  const NumberSpec& weight = spec.weight;
  const bool known_bits =
      weight.bits == 8 || (weight.bits == 4 && !weight.floating);
  NIBBLE_CHECK(known_bits,
               kUnsupported,
               "compressed-tensors: found {} weights, expected int4, int8 or "
               "fp8",
               weight.scheme);
  NIBBLE_CHECK(weight.symmetric || !weight.floating,
               kUnsupported,
               "compressed-tensors: found asymmetric fp8 weights, expected "
               "symmetric ones");
  NIBBLE_CHECK(is_weight_dtype(weight.scale_dtype),
               kUnsupported,
               "compressed-tensors: found {} scales, expected BF16, F16 or F32",
               dtype_name(weight.scale_dtype));
  switch (weight.grain) {
    case Grain::kChannel:
      break;
    case Grain::kTensor:
      NIBBLE_CHECK(
          storage_of(format_word(spec)) == Storage::kPlain,
          kUnsupported,
          "compressed-tensors: found packed weights with one scale a tensor, "
          "expected one a group or channel");
      break;
    case Grain::kGroup:
      NIBBLE_CHECK(weight.group > 0 && columns % weight.group == 0,
                   kUnsupported,
                   "compressed-tensors: found {} columns, expected a multiple "
                   "of the group of {}",
                   columns,
                   weight.group);
      break;
    case Grain::kBlock:
      NIBBLE_CHECK(weight.floating && weight.block_columns > 0 &&
                       weight.block_rows > 0 &&
                       kMostBlockRows % weight.block_rows == 0,
                   kUnsupported,
                   "compressed-tensors: found {} blocks of {}x{}, expected fp8 "
                   "blocks whose rows divide {}",
                   weight.scheme,
                   weight.block_rows,
                   weight.block_columns,
                   kMostBlockRows);
      break;
    case Grain::kToken:
      fail(ErrorCode::kUnsupported,
           "compressed-tensors: found weights with a scale a token, expected "
           "one a tensor, channel, group or block");
  }
  NIBBLE_CHECK(rows > 0 && columns > 0,
               kUnsupported,
               "compressed-tensors: found a weight of ({}, {}), expected at "
               "least one row and column",
               rows,
               columns);
}

}  // namespace

std::string_view format_word(const LayerSpec& spec) {
  if (spec.weight.floating) {
    return spec.input ? "float-quantized" : "naive-quantized";
  }
  return spec.input ? "int-quantized" : "pack-quantized";
}

Storage storage_of(std::string_view format) {
  return format == "pack-quantized" ? Storage::kPacked : Storage::kPlain;
}

std::vector<Part> parts_of(const LayerSpec& spec,
                           Storage storage,
                           std::int64_t rows,
                           std::int64_t columns) {
  const NumberSpec& weight = spec.weight;
  const ScaleGrid grid = scale_grid(weight, rows, columns);
  Shape scales = {grid.rows, grid.columns};
  std::vector<Shape> also;
  if (weight.grain == Grain::kTensor) {
    scales = {1};
    also = {Shape{}, Shape{1, 1}};
  } else if (weight.grain == Grain::kChannel) {
    also = {Shape{rows}};
  }
  std::vector<Part> parts;
  if (storage == Storage::kPacked) {
    parts.push_back({"weight_packed",
                     DType::kI32,
                     {rows, words_for(columns, weight.bits)},
                     {}});
  } else {
    parts.push_back({"weight",
                     weight.floating ? DType::kF8E4M3 : DType::kI8,
                     {rows, columns},
                     {}});
  }
  parts.push_back({"weight_scale", weight.scale_dtype, scales, also});
  if (storage == Storage::kPacked) {
    parts.push_back({"weight_shape", DType::kI64, {2}, {}});
  }
  if (!weight.symmetric && storage == Storage::kPacked) {
    parts.push_back({"weight_zero_point",
                     DType::kI32,
                     {words_for(rows, weight.bits), grid.columns},
                     {}});
  } else if (!weight.symmetric) {
    parts.push_back({"weight_zero_point", DType::kI8, scales, also});
  }
  if (spec.input && spec.input->grain == Grain::kTensor) {
    parts.push_back({"input_scale", weight.scale_dtype, {1}, {Shape{}}});
  }
  return parts;
}

void check_layer(const LayerSpec& spec,
                 std::int64_t rows,
                 std::int64_t columns) {
  check_weight(spec, rows, columns);
  if (spec.input) {
    check_input(spec.weight, *spec.input);
  }
}

}  // namespace nibble::quant::compressed_tensors
