#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/base/function_ref.h"
#include "nibble/base/progress.h"
#include "nibble/container/checkpoint.h"
#include "nibble/quant/pipeline/matrix/figures.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {

// The unit of finished work: a layer that is written, or a tensor that is
// copied. Items stand in the order of the source and depend on the plan alone.
struct Item {
  bool copy = false;
  std::size_t index = 0;  // into Plan::tensors if copy, else Plan::layers
};

[[nodiscard]] std::vector<Item> items_of(const Plan& plan);

// What is known of an item when it is finished.
struct ItemResult {
  // Digest of the weight as (rows, columns), or of the copied tensor. Of
  // input-major weights the digest of the digests of each unit_rows() rows,
  // joined as text: their rows exist only one unit after the other.
  std::string source_checksum;
  std::vector<std::string> output_checksums;  // as PlannedLayer::outputs
  ErrorSums sums;                             // of quantized layers
};

// What execute works with; all must outlive the call.
struct Execution {
  const Plan& plan;
  const load::CheckpointDirectory& source;
  container::CheckpointWriter& writer;
  ProgressSink& progress;
  const std::atomic<bool>& stop;
  // Items that need no work, with their results; the others are empty.
  std::vector<std::optional<ItemResult>> results;
  // Called once an item's bytes are written, by one thread at a time.
  std::function<void(std::size_t item, const ItemResult& result)> finished;
  // Called before bytes are written; tests make writing fail here.
  std::function<void(std::string_view step)> before_step;
  // Where codes come from when they are moved; else they are chosen.
  const CodeSource* codes = nullptr;
};

// Throws kInterrupted once stop is true.
void stop_if_asked(const std::atomic<bool>& stop);

// Runs every item without a result, in parallel, with buffers within
// plan.buffer_bytes. The bytes written do not depend on threads or memory.
// kCorruptData for weights that are not finite (tensor, position, counts),
// kInterrupted when stop became true; finished items stay finished.
[[nodiscard]] std::vector<ItemResult> execute(Execution execution);

}  // namespace nibble::quant
