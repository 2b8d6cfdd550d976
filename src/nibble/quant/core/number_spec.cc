#include "nibble/quant/core/number_spec.h"

#include <fmt/format.h>

#include "nibble/base/checked_math.h"

namespace nibble::quant {
namespace {

std::string describe(const NumberSpec& spec) {
  std::string text = spec.scheme;
  switch (spec.grain) {
    case Grain::kGroup:
      text += fmt::format(" group {}", spec.group);
      break;
    case Grain::kBlock:
      text += fmt::format(" block {}x{}", spec.block_rows, spec.block_columns);
      break;
    default:
      text += fmt::format(" {}", grain_name(spec.grain));
  }
  if (spec.real_zero) {
    return text + " with a real zero";
  }
  return spec.symmetric ? text : text + " asymmetric";
}

}  // namespace

std::string_view grain_name(Grain grain) {
  switch (grain) {
    case Grain::kTensor:
      return "tensor";
    case Grain::kChannel:
      return "channel";
    case Grain::kGroup:
      return "group";
    case Grain::kBlock:
      return "block";
    case Grain::kToken:
      return "token";
  }
  return "";
}

std::string describe(const LayerSpec& spec) {
  std::string text = describe(spec.weight);
  if (spec.input) {
    text += fmt::format(", {} inputs{}",
                        describe(*spec.input),
                        spec.input->grain == Grain::kTensor ? " static" : "");
  }
  return text;
}

ScaleGrid scale_grid(const NumberSpec& spec,
                     std::int64_t rows,
                     std::int64_t columns) {
  switch (spec.grain) {
    case Grain::kTensor:
      return {1, 1, rows, columns};
    case Grain::kGroup:
      return {rows, divide_up(columns, spec.group), 1, spec.group};
    case Grain::kBlock:
      return {divide_up(rows, spec.block_rows),
              divide_up(columns, spec.block_columns),
              spec.block_rows,
              spec.block_columns};
    case Grain::kChannel:
    case Grain::kToken:
      break;
  }
  return {rows, 1, 1, columns};
}

double bits_per_weight(const NumberSpec& spec,
                       std::int64_t rows,
                       std::int64_t columns) {
  const ScaleGrid grid = scale_grid(spec, rows, columns);
  const int zero_bits = spec.real_zero   ? dtype_bits(spec.scale_dtype)
                        : spec.symmetric ? 0
                                         : spec.bits;
  const int scale_bits = dtype_bits(spec.scale_dtype) + zero_bits;
  return spec.bits +
         static_cast<double>(grid.rows * grid.columns) * scale_bits /
             (static_cast<double>(rows) * static_cast<double>(columns));
}

}  // namespace nibble::quant
