#include "nibble/quant/pipeline/execute/execute.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/base/function_ref.h"
#include "nibble/base/hash/hash.h"
#include "nibble/base/memory_budget.h"
#include "nibble/base/parallel.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/execute/buffer_pool.h"
#include "nibble/quant/pipeline/execute/checksum.h"
#include "nibble/quant/pipeline/execute/ordered_digest.h"
#include "nibble/quant/pipeline/execute/pack_tile.h"
#include "nibble/quant/pipeline/matrix/read_matrix.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {
namespace {

using container::TensorInfo;

constexpr std::int64_t kCopyChunk = 8 << 20;       // bytes
constexpr std::int64_t kLeastCopyChunk = 1 << 20;  // bytes

// What is collected of an item while its pieces are worked on.
struct ItemState {
  std::size_t item = 0;
  OrderedDigest source;
  std::vector<std::string> source_units;  // of input-major weights, instead
  std::vector<OrderedDigest> outputs;
  std::vector<ErrorSums> unit_sums;  // a unit of rows each, in order
  std::size_t pieces_left = 0;       // guarded by Executor::mutex_
  // Range of the whole weight, for Grain::kTensor.
  std::size_t ranges_left = 0;  // guarded by Executor::mutex_
  float low = 0;
  float high = 0;
};

enum class PieceKind { kCopy, kRange, kLayer };

// A part of an item that one thread works on: bytes of a copied tensor or rows
// of a layer.
struct Piece {
  PieceKind kind = PieceKind::kCopy;
  std::shared_ptr<ItemState> state;
  std::int64_t first = 0;
  std::int64_t count = 0;
  MemoryBudget::Share share;
};

// Bytes of a piece that a digest may have to wait for, with their share of the
// budget: it is given back when the last digest has seen them.
struct PieceBytes {
  MemoryBudget::Share share;
  BufferPool::Buffer source;
  BufferPool::Buffer packed;
};

// Where rows of a piece begin in a matrix, given the bytes of all its rows.
std::uint64_t row_offset(const Piece& piece, std::size_t piece_bytes) {
  return static_cast<std::uint64_t>(piece.first) *
         (piece_bytes / static_cast<std::uint64_t>(piece.count));
}

class Executor {
 public:
  explicit Executor(Execution& execution)
      : execution_(execution),
        plan_(execution.plan),
        reader_(*execution.source.reader),
        items_(items_of(execution.plan)),
        workers_(thread_count()),
        scattered_(format_named(execution.plan.format).scatters_rows()),
        budget_(static_cast<std::size_t>(execution.plan.buffer_bytes)),
        pool_(budget_.limit_bytes()) {}

  std::vector<ItemResult> run() {
    // Every worker takes pieces until none is left; how many workers really
    // run at once is the scheduler's business.
    parallel_for(workers_, 1, [&](std::int64_t, std::int64_t) { work(); });
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    std::vector<ItemResult> results;
    results.reserve(items_.size());
    for (std::optional<ItemResult>& result : execution_.results) {
      results.push_back(std::move(*result));
    }
    return results;
  }

 private:
  void work() {
    try {
      TileScratch scratch;
      while (std::optional<Piece> piece = next_piece()) {
        process(std::move(*piece), scratch);
      }
    } catch (...) {
      give_up(std::current_exception());
    }
  }

  std::optional<Piece> next_piece();
  void open_item();
  Piece cut_piece();
  void process(Piece piece, TileScratch& scratch);
  void copy_piece(Piece& piece);
  void range_piece(Piece& piece, TileScratch& scratch);
  void layer_piece(Piece& piece, TileScratch& scratch);
  void dense_piece(Piece& piece, TileScratch& scratch);
  void quantized_piece(Piece& piece, TileScratch& scratch);
  void staged_piece(Piece& piece, TileScratch& scratch);
  void pack(Piece& piece,
            FunctionRef<ConstTensorView(std::int64_t, std::int64_t)> weight,
            const std::shared_ptr<PieceBytes>& bytes,
            TileScratch& scratch);
  std::shared_ptr<PieceBytes> read_tile(Piece& piece, TileScratch& scratch);
  ConstTensorView tile_of(const Piece& piece, const PieceBytes& bytes) const;
  void write_packed(Piece& piece,
                    std::span<const PackedRun> runs,
                    const std::shared_ptr<PieceBytes>& bytes);
  EncodeOptions encode_options(const Piece& piece);
  [[nodiscard]] std::string source_checksum(const ItemState& state) const;
  void finish_item(ItemState& state);
  void give_up(std::exception_ptr failure);

  [[nodiscard]] const PlannedLayer& layer(const ItemState& state) const {
    return plan_.layers[items_[state.item].index];
  }

  [[nodiscard]] const TensorInfo& source_of(const PlannedLayer& of) const {
    return reader_.tensors()[of.source.tensor];
  }

  void step(std::string_view name) const {
    if (execution_.before_step) {
      execution_.before_step(name);
    }
  }

  Execution& execution_;
  const Plan& plan_;
  const container::CheckpointReader& reader_;
  const std::vector<Item> items_;
  const int workers_;
  const bool scattered_;  // Format::scatters_rows
  MemoryBudget budget_;
  BufferPool pool_;

  // Pieces are handed out in order, memory included: the piece before any
  // other has its memory, so it can always be finished and the digests that
  // wait for it go on.
  std::mutex admission_;
  std::size_t next_item_ = 0;
  std::shared_ptr<ItemState> open_;  // the item that pieces are cut from
  std::int64_t open_end_ = 0;        // bytes or rows of it
  std::int64_t open_step_ = 0;       // bytes or rows a piece
  std::int64_t open_next_ = 0;
  bool open_ranges_ = false;  // the pass for the range is not cut yet

  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr failure_;
  std::vector<std::weak_ptr<ItemState>> live_;
};

// ---- Handing out -----------------------------------------------------------

std::optional<Piece> Executor::next_piece() {
  const std::scoped_lock admission(admission_);
  {
    const std::scoped_lock lock(mutex_);
    if (failure_) {
      return std::nullopt;
    }
  }
  if (open_ == nullptr || open_next_ >= open_end_) {
    open_ = nullptr;
    while (next_item_ < items_.size() &&
           execution_.results[next_item_].has_value()) {
      ++next_item_;
    }
    if (next_item_ == items_.size()) {
      return std::nullopt;
    }
    open_item();
  }
  if (execution_.stop.load(std::memory_order_relaxed)) {
    fail_with_hint(ErrorCode::kInterrupted,
                   "run the same command again to go on from here",
                   "interrupted with {} of {} parts done",
                   next_item_,
                   items_.size());
  }
  return cut_piece();
}

void Executor::open_item() {
  open_ = std::make_shared<ItemState>();
  open_->item = next_item_++;
  open_next_ = 0;
  open_ranges_ = false;
  const Item& item = items_[open_->item];
  std::size_t pieces = 0;
  if (item.copy) {
    const TensorInfo& tensor =
        reader_.tensors()[plan_.tensors[item.index].tensor];
    open_end_ = static_cast<std::int64_t>(tensor.bytes);
    open_step_ =
        std::clamp(static_cast<std::int64_t>(plan_.buffer_bytes) /
                       (workers_ + 1) / kLeastCopyChunk * kLeastCopyChunk,
                   kLeastCopyChunk,
                   kCopyChunk);
    // An empty tensor still has a (empty) piece, which finishes it.
    open_end_ = std::max<std::int64_t>(open_end_, 1);
  } else {
    const PlannedLayer& planned = plan_.layers[item.index];
    open_end_ = planned.source.rows;
    open_step_ = tile_rows(plan_, planned, source_of(planned).dtype, workers_);
    open_->outputs = std::vector<OrderedDigest>(planned.outputs.size());
    const auto units = static_cast<std::size_t>(
        divide_up(open_end_, tile_unit_rows(plan_, planned)));
    open_->unit_sums.resize(units);
    open_->source_units.resize(planned.source.transposed ? units : 0);
    open_ranges_ = planned.spec && planned.spec->weight.grain == Grain::kTensor;
  }
  pieces = static_cast<std::size_t>(divide_up(open_end_, open_step_));
  open_->pieces_left = pieces;
  open_->ranges_left = open_ranges_ ? pieces : 0;
  const std::scoped_lock lock(mutex_);
  std::erase_if(live_, [](const auto& state) { return state.expired(); });
  live_.push_back(open_);
}

Piece Executor::cut_piece() {
  const Item& item = items_[open_->item];
  Piece piece;
  piece.state = open_;
  piece.first = open_next_;
  piece.count = std::min(open_step_, open_end_ - open_next_);
  std::uint64_t cost = 0;
  if (item.copy) {
    const TensorInfo& tensor =
        reader_.tensors()[plan_.tensors[item.index].tensor];
    piece.count = std::min(
        piece.count, static_cast<std::int64_t>(tensor.bytes) - piece.first);
    cost = static_cast<std::uint64_t>(piece.count);
  } else {
    const PlannedLayer& planned = plan_.layers[item.index];
    piece.kind = open_ranges_ ? PieceKind::kRange : PieceKind::kLayer;
    cost =
        tile_cost_bytes(plan_, planned, source_of(planned).dtype, piece.count);
  }
  piece.share = budget_.acquire(static_cast<std::size_t>(cost));
  open_next_ += open_step_;
  if (open_ranges_ && open_next_ >= open_end_) {
    open_ranges_ = false;  // now the pass that encodes
    open_next_ = 0;
  }
  return piece;
}

// ---- Work ------------------------------------------------------------------

void Executor::process(Piece piece, TileScratch& scratch) {
  const std::shared_ptr<ItemState> state = piece.state;
  if (piece.kind == PieceKind::kRange) {
    range_piece(piece, scratch);
    return;
  }
  if (piece.kind == PieceKind::kCopy) {
    copy_piece(piece);
  } else {
    layer_piece(piece, scratch);
  }
  bool last = false;
  {
    const std::scoped_lock lock(mutex_);
    last = --state->pieces_left == 0 && !failure_;
  }
  if (last) {
    finish_item(*state);
  }
}

void Executor::copy_piece(Piece& piece) {
  const PlannedTensor& planned = plan_.tensors[items_[piece.state->item].index];
  const TensorInfo& tensor = reader_.tensors()[planned.tensor];
  const auto bytes = std::make_shared<PieceBytes>();
  bytes->share = std::move(piece.share);
  bytes->source = pool_.take(static_cast<std::size_t>(piece.count));
  const auto offset = static_cast<std::uint64_t>(piece.first);
  const std::span<std::byte> data = bytes->source.bytes();
  reader_.read(tensor, offset, data);
  if (planned.must_be_finite && is_weight_dtype(tensor.dtype)) {
    const std::int64_t elements =
        piece.count / static_cast<std::int64_t>(dtype_bytes(tensor.dtype));
    if (!all_finite(ConstTensorView(data.data(), tensor.dtype, {elements}))) {
      refuse_non_finite(reader_, tensor);
    }
  }
  step("write");
  execution_.writer.write(tensor.name, offset, data);
  piece.state->source.add(offset, data, bytes);
  execution_.progress.advance(data.size());
}

// The piece's rows, read and found finite.
std::shared_ptr<PieceBytes> Executor::read_tile(Piece& piece,
                                                TileScratch& scratch) {
  const PlannedLayer& planned = layer(*piece.state);
  auto bytes = std::make_shared<PieceBytes>();
  bytes->share = std::move(piece.share);
  bytes->source = pool_.take(
      static_cast<std::size_t>(piece.count * planned.source.columns) *
      dtype_bytes(source_of(planned).dtype));
  read_rows(reader_,
            planned.source,
            piece.first,
            bytes->source.bytes(),
            scratch.block);
  if (!all_finite(tile_of(piece, *bytes))) {
    refuse_non_finite(reader_, source_of(planned));
  }
  return bytes;
}

ConstTensorView Executor::tile_of(const Piece& piece,
                                  const PieceBytes& bytes) const {
  const PlannedLayer& planned = layer(*piece.state);
  return {bytes.source.bytes().data(),
          source_of(planned).dtype,
          {piece.count, planned.source.columns}};
}

void Executor::range_piece(Piece& piece, TileScratch& scratch) {
  const std::shared_ptr<PieceBytes> bytes = read_tile(piece, scratch);
  const auto [low, high] = range_of(tile_of(piece, *bytes));
  const std::scoped_lock lock(mutex_);
  ItemState& state = *piece.state;
  state.low = std::min(state.low, low);
  state.high = std::max(state.high, high);
  if (--state.ranges_left == 0) {
    changed_.notify_all();
  }
}

// The range of a whole tensor is complete when the pieces that look for it,
// which were handed out before this one, are done.
EncodeOptions Executor::encode_options(const Piece& piece) {
  EncodeOptions options;
  options.numerics = plan_.numerics;
  if (layer(*piece.state).spec->weight.grain == Grain::kTensor) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return piece.state->ranges_left == 0 || failure_ != nullptr;
    });
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    options.tensor_min = piece.state->low;
    options.tensor_max = piece.state->high;
  }
  return options;
}

void Executor::layer_piece(Piece& piece, TileScratch& scratch) {
  const PlannedLayer& planned = layer(*piece.state);
  if (!planned.spec) {
    dense_piece(piece, scratch);
  } else if (planned.source.transposed) {
    staged_piece(piece, scratch);
  } else {
    quantized_piece(piece, scratch);
  }
  execution_.progress.advance(
      static_cast<std::uint64_t>(piece.count * planned.source.columns) *
      dtype_bytes(source_of(planned).dtype));
}

// Rows of a stack that are written as they are.
void Executor::dense_piece(Piece& piece, TileScratch& scratch) {
  const PlannedLayer& planned = layer(*piece.state);
  const std::shared_ptr<PieceBytes> bytes = read_tile(piece, scratch);
  const ConstTensorView tile = tile_of(piece, *bytes);
  const std::uint64_t offset = row_offset(piece, tile.bytes());
  step("write");
  execution_.writer.write(
      planned.outputs.front().name, offset, tile.byte_span());
  piece.state->outputs.front().add(offset, tile.byte_span(), bytes);
  if (!planned.source.transposed) {
    piece.state->source.add(offset, tile.byte_span(), bytes);
    return;
  }
  const std::int64_t unit = tile_unit_rows(plan_, planned);
  for (std::int64_t row = 0; row < piece.count; row += unit) {
    piece.state
        ->source_units[static_cast<std::size_t>((piece.first + row) / unit)] =
        hash_bytes(
            tile.rows(row, std::min(unit, piece.count - row)).byte_span());
  }
}

void Executor::quantized_piece(Piece& piece, TileScratch& scratch) {
  const std::shared_ptr<PieceBytes> bytes = read_tile(piece, scratch);
  const ConstTensorView tile = tile_of(piece, *bytes);
  pack(
      piece,
      [&](std::int64_t first, std::int64_t count) {
        return tile.rows(first, count);
      },
      bytes,
      scratch);
  piece.state->source.add(
      row_offset(piece, tile.bytes()), tile.byte_span(), bytes);
}

// Input-major rows: each unit is turned while the one before it is forgotten.
void Executor::staged_piece(Piece& piece, TileScratch& scratch) {
  const PlannedLayer& planned = layer(*piece.state);
  const TensorInfo& tensor = source_of(planned);
  const std::int64_t unit = tile_unit_rows(plan_, planned);
  auto bytes = std::make_shared<PieceBytes>();
  bytes->share = std::move(piece.share);
  bytes->source =
      pool_.take(StagedRows::bytes(planned.source, tensor.dtype, piece.count));
  const StagedRows staged(
      reader_, planned.source, piece.first, piece.count, bytes->source.bytes());
  pack(
      piece,
      [&](std::int64_t first, std::int64_t count) {
        const ConstTensorView rows = staged.rows(first, count, scratch.block);
        if (!all_finite(rows)) {
          refuse_non_finite(reader_, tensor);
        }
        piece.state->source_units[static_cast<std::size_t>(
            (piece.first + first) / unit)] = hash_bytes(rows.byte_span());
        return rows;
      },
      bytes,
      scratch);
  // Digests of outputs may have to wait with the bytes, but not with these.
  bytes->source = {};
}

void Executor::pack(
    Piece& piece,
    FunctionRef<ConstTensorView(std::int64_t, std::int64_t)> weight,
    const std::shared_ptr<PieceBytes>& bytes,
    TileScratch& scratch) {
  const PlannedLayer& planned = layer(*piece.state);
  const EncodeOptions options = encode_options(piece);
  bytes->packed = pool_.take(packed_bytes(planned, piece.count));
  const auto first_unit =
      static_cast<std::size_t>(piece.first / tile_unit_rows(plan_, planned));
  const std::vector<PackedRun> runs =
      pack_tile({plan_,
                 planned,
                 options,
                 piece.first,
                 piece.count,
                 weight,
                 execution_.codes},
                bytes->packed.bytes(),
                std::span(piece.state->unit_sums).subspan(first_unit),
                scratch);
  write_packed(piece, runs, bytes);
}

void Executor::write_packed(Piece& piece,
                            std::span<const PackedRun> runs,
                            const std::shared_ptr<PieceBytes>& bytes) {
  const PlannedLayer& planned = layer(*piece.state);
  for (const PackedRun& run : runs) {
    step("write");
    execution_.writer.write(
        planned.outputs[run.output].name, run.offset, run.bytes);
    if (!scattered_) {
      piece.state->outputs[run.output].add(run.offset, run.bytes, bytes);
    }
  }
}

// ---- Ends ------------------------------------------------------------------

std::string Executor::source_checksum(const ItemState& state) const {
  const PlannedLayer& planned = layer(state);
  if (planned.source.transposed) {
    Hasher hasher;
    for (const std::string& unit : state.source_units) {
      hasher.update(unit);
    }
    return hasher.digest();
  }
  return state.source.digest(
      static_cast<std::uint64_t>(planned.source.rows * planned.source.columns) *
      dtype_bytes(source_of(planned).dtype));
}

void Executor::finish_item(ItemState& state) {
  const Item& item = items_[state.item];
  ItemResult result;
  if (item.copy) {
    const PlannedTensor& planned = plan_.tensors[item.index];
    result.source_checksum =
        state.source.digest(reader_.tensors()[planned.tensor].bytes);
    result.output_checksums = {result.source_checksum};
  } else {
    const PlannedLayer& planned = plan_.layers[item.index];
    result.source_checksum = source_checksum(state);
    for (std::size_t i = 0; i < planned.outputs.size(); ++i) {
      // Pieces of scattered rows would wait for each other in vain.
      result.output_checksums.push_back(
          scattered_ && planned.spec
              ? checksum_of(execution_.writer,
                            planned.outputs[i].name,
                            planned.outputs[i].bytes)
              : state.outputs[i].digest(planned.outputs[i].bytes));
    }
    for (const ErrorSums& sums : state.unit_sums) {
      result.sums += sums;
    }
  }
  const std::scoped_lock lock(mutex_);
  if (execution_.finished) {
    execution_.finished(state.item, result);
  }
  execution_.results[state.item] = std::move(result);
}

// The first failure wins. Digests let go of the memory they wait with, so that
// a thread that waits for memory comes to see the failure.
void Executor::give_up(std::exception_ptr failure) {
  std::vector<std::shared_ptr<ItemState>> states;
  {
    const std::scoped_lock lock(mutex_);
    if (!failure_) {
      failure_ = std::move(failure);
    }
    for (const auto& state : live_) {
      if (auto alive = state.lock()) {
        states.push_back(std::move(alive));
      }
    }
  }
  changed_.notify_all();
  for (const auto& state : states) {
    state->source.abandon();
    for (OrderedDigest& output : state->outputs) {
      output.abandon();
    }
  }
}

}  // namespace

std::vector<Item> items_of(const Plan& plan) {
  std::vector<Item> items;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].fate == Fate::kCopied) {
      items.push_back({true, i});
    }
    for (const std::size_t layer : plan.tensors[i].layers) {
      items.push_back({false, layer});
    }
  }
  return items;
}

void stop_if_asked(const std::atomic<bool>& stop) {
  if (stop.load(std::memory_order_relaxed)) {
    fail_with_hint(ErrorCode::kInterrupted,
                   "run the same command again to go on from here",
                   "interrupted");
  }
}

std::vector<ItemResult> execute(Execution execution) {
  execution.results.resize(items_of(execution.plan).size());
  return Executor(execution).run();
}

}  // namespace nibble::quant
