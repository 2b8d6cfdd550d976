#include "nibble/quant/pipeline/pack_tile.h"

#include <algorithm>
#include <string_view>

#include "nibble/base/error.h"
#include "nibble/quant/core/registry.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

// Collects what a format writes: bytes that follow each other become one run.
class Collector {
 public:
  explicit Collector(const PlannedLayer& layer) : layer_(layer) {}

  void add(std::string_view name,
           std::uint64_t offset,
           std::span<const std::byte> bytes) {
    const std::size_t output = index_of(name);
    const auto run = std::find_if(
        runs_.begin(), runs_.end(), [&](const PackedRun& candidate) {
          return candidate.output == output &&
                 candidate.offset + candidate.bytes.size() == offset;
        });
    if (run != runs_.end()) {
      run->bytes.insert(run->bytes.end(), bytes.begin(), bytes.end());
    } else {
      runs_.push_back({output, offset, {bytes.begin(), bytes.end()}});
    }
  }

  std::vector<PackedRun> take() { return std::move(runs_); }

  // Room for a whole tile, so that growing never copies.
  void reserve(std::int64_t tile_rows) {
    for (PackedRun& run : runs_) {
      run.bytes.reserve(static_cast<std::size_t>(
          layer_.outputs[run.output].bytes *
              static_cast<std::uint64_t>(tile_rows) /
              static_cast<std::uint64_t>(layer_.source.rows) +
          64));
    }
  }

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
  std::vector<PackedRun> runs_;
};

}  // namespace

std::vector<PackedRun> pack_tile(const TileJob& job,
                                 std::span<ErrorSums> sums) {
  const PlannedLayer& layer = job.layer;
  const NumberSpec& spec = layer.spec->weight;
  const Scheme& scheme = scheme_for(spec);
  const Algorithm& algorithm = algorithm_named(layer.algorithm);
  const Format& format = format_named(job.plan.format);
  const std::int64_t rows = job.weight.dim(0);
  const std::int64_t columns = job.weight.dim(1);
  const std::int64_t unit = tile_unit_rows(job.plan, layer);

  Collector collector(layer);
  const Format::Sink sink = [&](std::string_view name,
                                std::uint64_t offset,
                                std::span<const std::byte> bytes) {
    collector.add(name, offset, bytes);
  };
  const auto unit_elements = static_cast<std::size_t>(unit * columns);
  std::vector<float> weight(unit_elements);
  std::vector<float> decoded(unit_elements);
  for (std::int64_t row = 0, i = 0; row < rows; row += unit, ++i) {
    const std::int64_t count = std::min(unit, rows - row);
    const auto elements = static_cast<std::size_t>(count * columns);
    const ConstTensorView part = job.weight.rows(row, count);
    LayerJob one;
    one.members.push_back({layer.module, spec, part, job.options});
    const std::vector<Quantized> codes = algorithm.run(one, scheme, nullptr);

    convert_to_float(part, std::span(weight).first(elements));
    scheme.decode(codes.front(),
                  TensorView(reinterpret_cast<std::byte*>(decoded.data()),
                             DType::kF32,
                             {count, columns}));
    sums[static_cast<std::size_t>(i)] = measure_error(
        std::span(weight).first(elements), std::span(decoded).first(elements));
    format.pack(layer.module,
                *layer.spec,
                layer.source.rows,
                job.first_row + row,
                codes.front(),
                sink);
    if (i == 0) {
      collector.reserve(rows);
    }
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
