#include "nibble/quant/planning/probe.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <tuple>

#include "nibble/base/hash/hash.h"
#include "nibble/base/parallel.h"
#include "nibble/quant/pipeline/execute/pack_tile.h"
#include "nibble/quant/pipeline/matrix/read_matrix.h"
#include "nibble/quant/planning/write_probe.h"

namespace nibble::quant {
namespace {

using Clock = std::chrono::steady_clock;

// A part of a second in all: a few tiles each of a few kinds of layers.
constexpr std::size_t kMostKinds = 3;
constexpr double kEncodeSeconds = 0.08;  // a kind
constexpr double kWriteSeconds = 0.10;
constexpr std::uint64_t kWriteBytes = 64 << 20;
constexpr std::int64_t kTileBytes = 2 << 20;  // of source

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double rate(std::uint64_t bytes, double seconds) {
  return static_cast<double>(bytes) / std::max(seconds, 1e-9);
}

// Layers that take the same path through the encoder.
struct Kind {
  std::vector<std::size_t> layers;  // indices into plan.layers
  std::uint64_t source_bytes = 0;
};

// Source bytes of a layer.
std::uint64_t bytes_of(const PlannedLayer& layer, DType dtype) {
  return static_cast<std::uint64_t>(layer.source.rows * layer.source.columns) *
         dtype_bytes(dtype);
}

// A tile of one layer, for one thread, read as the job reads it.
struct Tile {
  const PlannedLayer* layer = nullptr;
  DType dtype = DType::kBF16;
  std::int64_t rows = 0;
  std::vector<std::byte> source;
  std::optional<StagedRows> staged;  // of input-major layers
  std::vector<std::byte> unit;       // what is turned into rows of it
  std::vector<std::byte> packed;
  std::vector<ErrorSums> sums;
  EncodeOptions options;
  TileScratch scratch;

  void read(const container::CheckpointReader& reader) {
    const MatrixSource& matrix = layer->source;
    if (matrix.transposed) {
      source.resize(StagedRows::bytes(matrix, dtype, rows));
      staged.emplace(reader, matrix, 0, rows, source);
    } else {
      source.resize(static_cast<std::size_t>(rows * matrix.columns) *
                    dtype_bytes(dtype));
      read_rows(reader, matrix, 0, source, scratch.block);
    }
  }

  // Every element, in whatever order.
  [[nodiscard]] ConstTensorView elements() const {
    return {source.data(),
            dtype,
            {static_cast<std::int64_t>(source.size() / dtype_bytes(dtype))}};
  }

  [[nodiscard]] ConstTensorView weight(std::int64_t first, std::int64_t count) {
    if (staged) {
      return staged->rows(first, count, unit);
    }
    return ConstTensorView(source.data(), dtype, {rows, layer->source.columns})
        .rows(first, count);
  }
};

class Probe {
 public:
  Probe(const Plan& plan, const load::CheckpointDirectory& source)
      : plan_(plan), reader_(*source.reader) {
    estimate_.threads = thread_count();
  }

  std::optional<TimeEstimate> run(const std::filesystem::path& output) {
    const auto start = Clock::now();
    double encode_seconds = 0;
    double measured_share = 0;
    const std::vector<Kind> kinds = kinds_of_plan();
    std::uint64_t encoded_bytes = 0;
    for (const Kind& kind : kinds) {
      encoded_bytes += kind.source_bytes;
    }
    for (std::size_t i = 0; i < std::min(kinds.size(), kMostKinds); ++i) {
      if (!read_tiles(kinds[i])) {
        continue;
      }
      encode_seconds +=
          static_cast<double>(kinds[i].source_bytes) / encode_tiles(kinds[i]);
      measured_share += static_cast<double>(kinds[i].source_bytes);
    }
    if (measured_share == 0) {
      return std::nullopt;
    }
    // Kinds that were not measured are taken to be as fast as the others.
    encode_seconds *= static_cast<double>(encoded_bytes) / measured_share;
    measure_disk(output);
    estimate_.seconds = encode_seconds +
                        static_cast<double>(plan_.source_bytes) /
                            estimate_.read_bytes_per_second +
                        static_cast<double>(plan_.output_bytes) *
                            (1 / estimate_.write_bytes_per_second +
                             1 / estimate_.check_bytes_per_second);
    estimate_.probe_seconds = seconds_since(start);
    return estimate_;
  }

 private:
  [[nodiscard]] DType dtype_of(const PlannedLayer& layer) const {
    return reader_.tensors()[layer.source.tensor].dtype;
  }

  // The kinds with most bytes first.
  [[nodiscard]] std::vector<Kind> kinds_of_plan() const {
    std::map<std::tuple<std::string, DType, bool>, Kind> by_path;
    for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
      const PlannedLayer& layer = plan_.layers[i];
      if (!layer.spec) {
        continue;
      }
      const DType dtype = dtype_of(layer);
      Kind& kind =
          by_path[{describe(*layer.spec), dtype, layer.source.transposed}];
      kind.layers.push_back(i);
      kind.source_bytes += bytes_of(layer, dtype);
    }
    std::vector<Kind> kinds;
    for (auto& [path, kind] : by_path) {
      kinds.push_back(std::move(kind));
    }
    std::stable_sort(
        kinds.begin(), kinds.end(), [](const Kind& a, const Kind& b) {
          return a.source_bytes > b.source_bytes;
        });
    return kinds;
  }

  bool read_tiles(const Kind& kind);
  double encode_tiles(const Kind& kind);
  void measure_disk(const std::filesystem::path& output);

  const Plan& plan_;
  const container::CheckpointReader& reader_;
  std::vector<Tile> tiles_;  // one a thread
  double read_seconds_ = 0;
  TimeEstimate estimate_;
};

// Fills one tile a thread from layers of a kind; false without finite values.
bool Probe::read_tiles(const Kind& kind) {
  const auto threads = static_cast<std::size_t>(estimate_.threads);
  std::vector<Tile> tiles(threads);
  const auto start = Clock::now();
  parallel_for(
      static_cast<std::int64_t>(threads), 1, [&](std::int64_t t, std::int64_t) {
        Tile& tile = tiles[static_cast<std::size_t>(t)];
        // Spread over the model: a tile that was just written by another
        // program is cached, the rest may not be.
        const std::size_t step = kind.layers.size() / threads;
        const std::size_t at = static_cast<std::size_t>(t) * step;
        tile.layer = &plan_.layers[kind.layers[at]];
        tile.dtype = dtype_of(*tile.layer);
        const std::int64_t row_bytes =
            tile.layer->source.columns *
            static_cast<std::int64_t>(dtype_bytes(tile.dtype));
        const std::int64_t unit = tile_unit_rows(plan_, *tile.layer);
        tile.rows = std::min(
            {tile.layer->source.rows,
             std::max(unit, kTileBytes / row_bytes / unit * unit),
             tile_rows(plan_, *tile.layer, tile.dtype, estimate_.threads)});
        tile.read(reader_);
        if (!all_finite(tile.elements())) {
          tile.rows = 0;  // the job will refuse it, with its place
        }
      });
  read_seconds_ += seconds_since(start);
  if (std::any_of(tiles.begin(), tiles.end(), [](const Tile& tile) {
        return tile.rows == 0;
      })) {
    return false;
  }
  for (Tile& tile : tiles) {
    estimate_.read_bytes += tile.source.size();
    tile.packed.resize(packed_bytes(*tile.layer, tile.rows));
    tile.sums.resize(static_cast<std::size_t>(tile.rows));
    if (tile.layer->spec->weight.grain == Grain::kTensor) {
      const auto [low, high] = range_of(tile.elements());
      tile.options.tensor_min = low;
      tile.options.tensor_max = high;
    }
    tile.options.numerics = plan_.numerics;
  }
  tiles_ = std::move(tiles);
  return true;
}

// Bytes of source a second, all threads together.
double Probe::encode_tiles(const Kind& kind) {
  const auto start = Clock::now();
  std::uint64_t bytes = 0;
  int rounds = 0;
  do {
    // The first round touches memory for the first time, as a job does once.
    parallel_for(
        static_cast<std::int64_t>(tiles_.size()),
        1,
        [&](std::int64_t t, std::int64_t) {
          Tile& tile = tiles_[static_cast<std::size_t>(t)];
          (void)hash_bytes(tile.source);
          const auto weight = [&](std::int64_t first, std::int64_t count) {
            return tile.weight(first, count);
          };
          for (const PackedRun& run : pack_tile(
                   {plan_, *tile.layer, tile.options, 0, tile.rows, weight},
                   tile.packed,
                   tile.sums,
                   tile.scratch)) {
            (void)hash_bytes(run.bytes);
          }
        });
    for (const Tile& tile : tiles_) {
      bytes += tile.source.size();
    }
    ++rounds;
  } while (seconds_since(start) < kEncodeSeconds && rounds < 64);
  const double speed = rate(bytes, seconds_since(start));
  const PlannedLayer& layer = plan_.layers[kind.layers.front()];
  estimate_.encode.push_back(
      {describe(*layer.spec), layer.source.transposed, speed});
  return speed;
}

void Probe::measure_disk(const std::filesystem::path& output) {
  estimate_.read_bytes_per_second = rate(estimate_.read_bytes, read_seconds_);
  // The check reads what was just written, from memory: the same tiles again.
  const auto start = Clock::now();
  std::uint64_t bytes = 0;
  parallel_for(static_cast<std::int64_t>(tiles_.size()),
               1,
               [&](std::int64_t t, std::int64_t) {
                 Tile& tile = tiles_[static_cast<std::size_t>(t)];
                 tile.read(reader_);
                 (void)hash_bytes(tile.source);
               });
  for (const Tile& tile : tiles_) {
    bytes += tile.source.size();
  }
  estimate_.check_bytes_per_second = rate(bytes, seconds_since(start));

  const WriteProbe written = probe_write(
      existing_directory(output.empty() ? std::filesystem::temp_directory_path()
                                        : output),
      tiles_.front().source,
      std::min<std::uint64_t>(kWriteBytes, plan_.output_bytes),
      kWriteSeconds);
  estimate_.written_bytes = written.bytes;
  estimate_.written_to = written.directory;
  // A place that takes nothing is refused elsewhere; here it costs no time.
  estimate_.write_bytes_per_second = written.bytes == 0
                                         ? estimate_.read_bytes_per_second
                                         : rate(written.bytes, written.seconds);
}

}  // namespace

std::optional<TimeEstimate> probe_time(const Plan& plan,
                                       const load::CheckpointDirectory& source,
                                       const std::filesystem::path& output) {
  return Probe(plan, source).run(output);
}

}  // namespace nibble::quant
