#include "nibble/quant/pipeline/pack_tile.h"

#include <algorithm>
#include <string_view>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/layer_error.h"
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
                 candidate.offset + candidate.bytes.size() == offset;
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
  const Algorithm& algorithm = algorithm_named(layer.algorithm);
  const Format& format = format_named(job.plan.format);
  const std::int64_t rows = job.rows;
  const std::int64_t unit = tile_unit_rows(job.plan, layer);

  Collector collector(layer, rows, packed);
  const Format::Sink sink = [&](std::string_view name,
                                std::uint64_t offset,
                                std::span<const std::byte> bytes) {
    collector.add(name, offset, bytes);
  };
  for (std::int64_t row = 0, i = 0; row < rows; row += unit, ++i) {
    const std::int64_t count = std::min(unit, rows - row);
    const ConstTensorView part = job.weight(row, count);
    LayerJob one;
    one.members.push_back({layer.module, spec, part, job.options});
    const std::vector<Quantized> codes = algorithm.run(one, scheme, nullptr);

    sums[static_cast<std::size_t>(i)] =
        measure_error(scheme, codes.front(), part, scratch.decoded);
    format.pack(layer.module,
                *layer.spec,
                layer.source.rows,
                job.first_row + row,
                codes.front(),
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
