#include "nibble/quant/pipeline/execute/pack_tile.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/execute/layer_error.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

// A tile's share of an output, and a little for outputs that do not grow with
// rows (shapes, one scale for all).
std::size_t room_for(const container::TensorInfo& output,
                     std::int64_t layer_rows,
                     std::int64_t rows) {
  constexpr std::uint64_t kLittle = 64;
  return static_cast<std::size_t>(
      divide_up(output.bytes * static_cast<std::uint64_t>(rows),
                static_cast<std::uint64_t>(layer_rows)) +
      kLittle);
}

// Collects what a format writes: bytes that follow each other become one run,
// in the part of the memory that belongs to their output.
class Collector {
 public:
  Collector(const PlannedLayer& layer,
            std::int64_t rows,
            std::span<std::byte> memory)
      : layer_(layer) {
    for (const container::TensorInfo& output : layer.outputs) {
      const std::size_t room = room_for(output, layer.source.rows, rows);
      free_.push_back(memory.first(room));
      memory = memory.subspan(room);
    }
  }

  void add(std::string_view name,
           std::uint64_t offset,
           std::span<const std::byte> bytes) {
    const std::size_t output = index_of(name);
    std::span<std::byte>& free = free_[output];
    NIBBLE_CHECK(bytes.size() <= free.size(),
                 kInternal,
                 "tensor {}: found more packed bytes than rows account for",
                 name);
    const auto to = free.first(bytes.size());
    std::copy(bytes.begin(), bytes.end(), to.begin());
    free = free.subspan(bytes.size());
    const auto run = std::find_if(
        runs_.begin(), runs_.end(), [&](const PackedRun& candidate) {
          return candidate.output == output &&
                 candidate.offset + candidate.bytes.size() == offset &&
                 candidate.bytes.data() + candidate.bytes.size() == to.data();
        });
    if (run != runs_.end()) {
      run->bytes = {run->bytes.data(), run->bytes.size() + bytes.size()};
    } else {
      runs_.push_back({output, offset, to});
    }
  }

  std::vector<PackedRun> take() { return std::move(runs_); }

 private:
  [[nodiscard]] std::size_t index_of(std::string_view name) const {
    const auto found = std::find_if(
        layer_.outputs.begin(), layer_.outputs.end(), [&](const auto& output) {
          return output.name == name;
        });
    NIBBLE_CHECK(found != layer_.outputs.end(),
                 kInternal,
                 "layer {}: found an output {} that was not planned",
                 layer_.module,
                 name);
    return static_cast<std::size_t>(found - layer_.outputs.begin());
  }

  const PlannedLayer& layer_;
  std::vector<std::span<std::byte>> free_;  // of each output
  std::vector<PackedRun> runs_;
};

// Puts the rows of a unit where they belong in a tile. Every row has scales of
// its own in the formats that scatter rows.
class WholeTile {
 public:
  WholeTile(std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns) {}

  void add(std::int64_t row, const Quantized& unit) {
    if (row == 0) {
      tile_.spec = unit.spec;
      tile_.rows = rows_;
      tile_.columns = columns_;
      const std::int64_t groups = unit.scales.shape()[1];
      tile_.codes = Tensor(unit.codes.dtype(), {rows_, columns_});
      tile_.scales = Tensor(unit.scales.dtype(), {rows_, groups});
      if (unit.zeros) {
        tile_.zeros = Tensor(unit.zeros->dtype(), {rows_, groups});
      }
    }
    put(unit.codes, row, tile_.codes);
    put(unit.scales, row, tile_.scales);
    if (unit.zeros) {
      put(*unit.zeros, row, *tile_.zeros);
    }
  }

  [[nodiscard]] const Quantized& tile() const { return tile_; }

 private:
  static void put(const Tensor& unit, std::int64_t row, Tensor& tile) {
    const auto from = unit.view().byte_span();
    const auto to = tile.view().rows(row, unit.shape()[0]).byte_span();
    std::copy(from.begin(), from.end(), to.begin());
  }

  std::int64_t rows_;
  std::int64_t columns_;
  Quantized tile_;
};

// Rows that are encoded, measured and packed at a time, a part of a unit: few,
// so that their codes are still in the second cache when they are packed.
std::int64_t rows_at_a_time(const TileJob& job,
                            const Format& format,
                            std::int64_t unit) {
  constexpr std::int64_t kElements = 128 << 10;  // 256 KiB of BF16
  if (job.codes != nullptr ||
      !algorithm_named(job.layer.algorithm).row_separable()) {
    return unit;
  }
  const NumberSpec& spec = job.layer.spec->weight;
  const std::int64_t columns = job.layer.source.columns;
  std::int64_t step =
      std::lcm(format.row_multiple(), whole_error_rows(columns));
  if (spec.grain == Grain::kBlock) {
    step = std::lcm(step, spec.block_rows);
  }
  return std::min(
      unit, step * std::max<std::int64_t>(1, kElements / (step * columns)));
}

// Rounds scales to the type in which spec stores them.
void store_scales(const NumberSpec& spec, Quantized& codes) {
  if (codes.scales.dtype() != spec.scale_dtype) {
    std::vector<float> values(
        static_cast<std::size_t>(codes.scales.shape().elements()));
    convert_to_float(std::as_const(codes.scales).view(), values);
    Tensor rounded(spec.scale_dtype, codes.scales.shape());
    convert_from_float(values, rounded.view());
    codes.scales = std::move(rounded);
  }
  codes.spec = spec;
}

}  // namespace

std::size_t packed_bytes(const PlannedLayer& layer, std::int64_t rows) {
  std::size_t bytes = 0;
  for (const container::TensorInfo& output : layer.outputs) {
    bytes += room_for(output, layer.source.rows, rows);
  }
  return bytes;
}

std::vector<PackedRun> pack_tile(const TileJob& job,
                                 std::span<std::byte> packed,
                                 std::span<ErrorSums> sums,
                                 TileScratch& scratch) {
  const PlannedLayer& layer = job.layer;
  const NumberSpec& spec = layer.spec->weight;
  const Scheme& scheme = scheme_for(spec);
  const Format& format = format_named(job.plan.format);
  const std::int64_t rows = job.rows;
  const std::int64_t unit = tile_unit_rows(job.plan, layer);

  // The format's own tool may choose codes by other scales than it stores.
  EncodeOptions options = job.options;
  NumberSpec encoded = spec;
  if (options.numerics == Numerics::kReference) {
    const Format::Encoding encoding = format.reference_encoding(*layer.spec);
    options.numerics = encoding.numerics;
    encoded.scale_dtype = encoding.scale_dtype;
  }
  const auto choose = [&](ConstTensorView part, std::int64_t row) {
    if (job.codes != nullptr) {
      return job.codes->rows(layer.module, row, part.dim(0));
    }
    LayerJob one;
    one.members.push_back({layer.module, encoded, part, options});
    std::vector<Quantized> codes =
        algorithm_named(layer.algorithm).run(one, scheme, nullptr);
    store_scales(spec, codes.front());
    return std::move(codes.front());
  };
  Collector collector(layer, rows, packed);
  const Format::Sink sink = [&](std::string_view name,
                                std::uint64_t offset,
                                std::span<const std::byte> bytes) {
    collector.add(name, offset, bytes);
  };
  WholeTile whole(rows, layer.source.columns);
  const std::int64_t step = rows_at_a_time(job, format, unit);
  for (std::int64_t row = 0, i = 0; row < rows; row += unit, ++i) {
    const std::int64_t unit_end = std::min(unit, rows - row);
    const ConstTensorView weight = job.weight(row, unit_end);
    ErrorSums& unit_sums = sums[static_cast<std::size_t>(i)];
    unit_sums = {};
    for (std::int64_t first = 0; first < unit_end; first += step) {
      const ConstTensorView part =
          weight.rows(first, std::min(step, unit_end - first));
      const Quantized codes = choose(part, job.first_row + row + first);
      measure_error(scheme, codes, part, scratch.decoded, unit_sums);
      if (format.scatters_rows()) {
        whole.add(row + first, codes);
      } else {
        format.pack(layer.module,
                    *layer.spec,
                    layer.source.rows,
                    job.first_row + row + first,
                    codes,
                    sink);
      }
    }
  }
  if (format.scatters_rows()) {
    format.pack(layer.module,
                *layer.spec,
                layer.source.rows,
                job.first_row,
                whole.tile(),
                sink);
  }
  return collector.take();
}

std::pair<float, float> range_of(ConstTensorView tile) {
  constexpr std::size_t kChunk = 4096;  // elements, in the first cache
  std::vector<float> values(kChunk);
  float low = 0;
  float high = 0;
  const auto elements = static_cast<std::size_t>(tile.elements());
  const std::size_t element = dtype_bytes(tile.dtype());
  for (std::size_t at = 0; at < elements; at += kChunk) {
    const std::size_t count = std::min(kChunk, elements - at);
    convert_to_float({tile.data() + at * element,
                      tile.dtype(),
                      {static_cast<std::int64_t>(count)}},
                     std::span(values).first(count));
    for (const float value : std::span(values).first(count)) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  return {low, high};
}

}  // namespace nibble::quant
