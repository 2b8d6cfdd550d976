#include "nibble/quant/core/kernels/encode_tile.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "nibble/base/checked_math.h"
#include "nibble/quant/core/kernels/ranges.h"
#include "nibble/quant/core/kernels/scale_rule.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

// Source bytes handled at a time: half of a first-level cache, so that the
// second pass over a strip reads no memory.
constexpr std::size_t kStripBytes = 16384;
constexpr std::size_t kStripRuns = 128;

// One encode call: the spec's rule and where results go.
struct Tile {
  ConstTensorView weight;
  ScaleRule rule;
  CodeFunctions functions;
  RangeFn ranges;
  Quantized result;

  [[nodiscard]] const std::byte* weights_at(std::int64_t element) const {
    return weight.data() +
           static_cast<std::size_t>(element) * dtype_bytes(weight.dtype());
  }

  [[nodiscard]] std::uint8_t* codes_at(std::int64_t element) {
    return result.codes.view().raw<std::uint8_t>().data() + element;
  }

  // Stores scales and zero points from place `first` of the grid on.
  void store(std::int64_t first,
             std::span<const float> scales,
             const std::int8_t* zeros) {
    if (result.scales.dtype() == DType::kBF16) {
      // They are rounded already; this is the quick way to say so.
      auto* stored = result.scales.view().raw<std::uint16_t>().data() + first;
      for (const float scale : scales) {
        *stored++ = static_cast<std::uint16_t>(
            std::bit_cast<std::uint32_t>(scale) >> 16);
      }
    } else {
      const TensorView all = result.scales.view();
      const auto offset =
          static_cast<std::size_t>(first) * dtype_bytes(all.dtype());
      convert_from_float(
          scales,
          TensorView(all.data() + offset,
                     all.dtype(),
                     {static_cast<std::int64_t>(scales.size())}));
    }
    if (result.zeros) {
      std::copy_n(zeros,
                  scales.size(),
                  result.zeros->view().as<std::int8_t>().begin() + first);
    }
  }

  void encode(CodeRuns runs, bool fast) {
    runs.low = static_cast<int>(rule.low);
    runs.high = static_cast<int>(rule.high);
    (fast && functions.fast != nullptr ? functions.fast
                                       : functions.portable)(runs);
  }
};

// Grids whose scales each cover `length` adjoining elements: groups, channels
// and whole tensors.
void encode_runs(Tile& tile, std::int64_t runs, std::int64_t length) {
  const std::size_t run_bytes =
      static_cast<std::size_t>(length) * dtype_bytes(tile.weight.dtype());
  const auto strip = static_cast<std::int64_t>(
      std::clamp<std::size_t>(kStripBytes / run_bytes, 1, kStripRuns));
  std::array<float, kStripRuns> low{};
  std::array<float, kStripRuns> high{};
  std::array<float, kStripRuns> scales{};
  std::array<std::int8_t, kStripRuns> zeros{};
  std::int8_t* const zeros_or_null =
      tile.rule.symmetric ? nullptr : zeros.data();
  for (std::int64_t first = 0; first < runs; first += strip) {
    const auto count = static_cast<std::size_t>(std::min(strip, runs - first));
    const std::byte* weights = tile.weights_at(first * length);
    tile.ranges(weights,
                count,
                static_cast<std::size_t>(length),
                low.data(),
                high.data());
    const bool fast = choose_scales(tile.rule,
                                    low.data(),
                                    high.data(),
                                    count,
                                    scales.data(),
                                    zeros_or_null);
    tile.store(first, {scales.data(), count}, zeros_or_null);
    tile.encode({.weight = weights,
                 .runs = count,
                 .length = static_cast<std::size_t>(length),
                 .scales = scales.data(),
                 .zeros = zeros_or_null,
                 .codes = tile.codes_at(first * length),
                 .fetch_ahead = count * run_bytes},
                fast);
  }
}

// One scale for all, with a range that the caller knows.
void encode_with_range(Tile& tile, float low, float high) {
  float least = 0;
  float greatest = 0;
  tile.ranges(tile.weight.data(),
              1,
              static_cast<std::size_t>(tile.weight.elements()),
              &least,
              &greatest);
  // With `magnitude` functions, least is -greatest.
  const bool covered = tile.rule.symmetric ? greatest <= std::max(-low, high)
                                           : low <= least && greatest <= high;
  NIBBLE_CHECK(covered,
               kInternal,
               "encode: found weights from {} to {}, expected them within the "
               "tensor's {} to {}",
               least,
               greatest,
               low,
               high);
  float scale = 0;
  std::int8_t zero = 0;
  const bool fast = choose_scales(tile.rule, &low, &high, 1, &scale, &zero);
  tile.store(0, {&scale, 1}, &zero);
  tile.encode({.weight = tile.weight.data(),
               .runs = 1,
               .length = static_cast<std::size_t>(tile.weight.elements()),
               .scales = &scale,
               .zeros = tile.rule.symmetric ? nullptr : &zero,
               .codes = tile.codes_at(0)},
              fast);
}

// Adjoining runs of a row, one in each block from the block `first` on.
struct RowRuns {
  std::int64_t column = 0;
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t length = 0;
};

// Those of the whole blocks, and of one that the last column cuts.
std::vector<RowRuns> row_runs(std::int64_t columns, std::int64_t block) {
  std::vector<RowRuns> all;
  const auto whole = static_cast<std::size_t>(columns / block);
  if (whole > 0) {
    all.push_back({0, 0, whole, static_cast<std::size_t>(block)});
  }
  if (columns % block != 0) {
    all.push_back({columns / block * block,
                   whole,
                   1,
                   static_cast<std::size_t>(columns % block)});
  }
  return all;
}

// Goes by rows of blocks, all columns at once: parts of rows would be read from
// memory no faster for being read once.
void encode_blocks(Tile& tile, std::int64_t rows, std::int64_t columns) {
  const NumberSpec& spec = tile.result.spec;
  const std::vector<RowRuns> all_runs = row_runs(columns, spec.block_columns);
  const auto blocks =
      static_cast<std::size_t>(divide_up(columns, spec.block_columns));
  std::vector<float> least(blocks);  // of one row
  std::vector<float> greatest(blocks);
  std::vector<float> low(blocks);
  std::vector<float> high(blocks);
  std::vector<float> scales(blocks);
  std::vector<std::int8_t> zeros(blocks);
  std::int8_t* const zeros_or_null =
      tile.rule.symmetric ? nullptr : zeros.data();
  for (std::int64_t top = 0; top < rows; top += spec.block_rows) {
    const std::int64_t bottom = std::min(rows, top + spec.block_rows);
    std::fill(low.begin(), low.end(), 0.0F);
    std::fill(high.begin(), high.end(), 0.0F);
    for (std::int64_t row = top; row < bottom; ++row) {
      for (const RowRuns& runs : all_runs) {
        tile.ranges(tile.weights_at(row * columns + runs.column),
                    runs.count,
                    runs.length,
                    &least[runs.first],
                    &greatest[runs.first]);
      }
      for (std::size_t i = 0; i < blocks; ++i) {
        low[i] = std::min(low[i], least[i]);
        high[i] = std::max(high[i], greatest[i]);
      }
    }
    const bool fast = choose_scales(tile.rule,
                                    low.data(),
                                    high.data(),
                                    blocks,
                                    scales.data(),
                                    zeros_or_null);
    tile.store(top / spec.block_rows * static_cast<std::int64_t>(blocks),
               scales,
               zeros_or_null);
    for (std::int64_t row = top; row < bottom; ++row) {
      for (const RowRuns& runs : all_runs) {
        const std::int64_t element = row * columns + runs.column;
        tile.encode({.weight = tile.weights_at(element),
                     .runs = runs.count,
                     .length = runs.length,
                     .scales = &scales[runs.first],
                     .zeros = zeros_or_null ? &zeros[runs.first] : nullptr,
                     .codes = tile.codes_at(element)},
                    fast);
      }
    }
  }
}

Quantized empty_result(const NumberSpec& spec,
                       std::int64_t rows,
                       std::int64_t columns) {
  const ScaleGrid grid = scale_grid(spec, rows, columns);
  Quantized result;
  result.spec = spec;
  result.rows = rows;
  result.columns = columns;
  result.codes =
      Tensor(spec.floating ? DType::kF8E4M3 : DType::kI8, {rows, columns});
  result.scales = Tensor(spec.scale_dtype, {grid.rows, grid.columns});
  if (!spec.symmetric) {
    result.zeros = Tensor(DType::kI8, {grid.rows, grid.columns});
  }
  return result;
}

}  // namespace

CodeFunctions pick_functions(const CodeKernels& portable,
                             const CodeKernels& fast,
                             DType dtype,
                             DType scale_dtype,
                             Numerics numerics) {
  const std::size_t mode = numerics == Numerics::kReference ? 1 : 0;
  switch (dtype) {
    case DType::kF32:
      return {portable.f32[mode], fast.f32[mode]};
    case DType::kF16:
      return {portable.f16[mode], fast.f16[mode]};
    case DType::kBF16:
      return scale_dtype == DType::kBF16
                 ? CodeFunctions{portable.bf16_short[mode],
                                 fast.bf16_short[mode]}
                 : CodeFunctions{portable.bf16[mode], fast.bf16[mode]};
    default:
      fail(ErrorCode::kUnsupported,
           "weights: found {}, expected F32, F16 or BF16",
           dtype_name(dtype));
  }
}

Quantized encode_tile(const NumberSpec& spec,
                      ConstTensorView weight,
                      const EncodeOptions& options,
                      const CodeFunctions& functions,
                      Isa isa) {
  NIBBLE_CHECK(weight.shape().rank() == 2 && is_weight_dtype(weight.dtype()),
               kInternal,
               "encode: found {} {}, expected a matrix of F32, F16 or BF16",
               dtype_name(weight.dtype()),
               to_string(weight.shape()));
  const std::int64_t rows = weight.dim(0);
  const std::int64_t columns = weight.dim(1);
  Tile tile{weight,
            scale_rule(spec, options.numerics, weight.dtype()),
            functions,
            range_function(weight.dtype(), spec.symmetric, isa),
            empty_result(spec, rows, columns)};
  if (weight.elements() == 0) {
    return std::move(tile.result);
  }
  switch (spec.grain) {
    case Grain::kTensor:
      if (options.tensor_min && options.tensor_max) {
        encode_with_range(tile, *options.tensor_min, *options.tensor_max);
      } else {
        encode_runs(tile, 1, weight.elements());
      }
      break;
    case Grain::kChannel:
      encode_runs(tile, rows, columns);
      break;
    case Grain::kGroup:
      NIBBLE_CHECK(spec.group > 0 && columns % spec.group == 0,
                   kInternal,
                   "encode: found group {} and {} columns, expected a divisor",
                   spec.group,
                   columns);
      encode_runs(tile, rows * (columns / spec.group), spec.group);
      break;
    case Grain::kBlock:
      encode_blocks(tile, rows, columns);
      break;
    case Grain::kToken:
      fail(ErrorCode::kInternal,
           "encode: found grain token, expected a grain of weights");
  }
  return std::move(tile.result);
}

}  // namespace nibble::quant
