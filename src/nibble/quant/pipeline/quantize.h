#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nibble/base/progress.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {

// What a finished job reports.
struct QuantizeReport {
  std::filesystem::path output;
  std::uint64_t source_bytes = 0;  // of tensors
  std::uint64_t output_bytes = 0;  // of tensors
  double bits_per_weight = 0;
  double seconds = 0;
  std::uint64_t peak_rss_bytes = 0;
  std::size_t resumed_parts = 0;  // found finished by an earlier run
  std::vector<std::string> notes;
};  // what became of each tensor: read_receipt(output)

// Plans, executes, checks and publishes: a checkpoint appears at
// options.output once it is complete and was read back, and not before. Until
// then it grows in "OUTPUT.partial"; after a kill, an interruption (stop
// becomes true: kInterrupted) or a full disk the same call goes on from there
// and gives the same bytes. Any other failure removes what was written.
// source must stay unchanged meanwhile. With options.ranks every process of the
// job makes the same call; the report of rank 0 counts. Throws what make_plan
// throws, kCorruptData for weights that are not finite, kIo, kCheckFailed when
// what was read back differs. One call at a time a process.
[[nodiscard]] QuantizeReport quantize(const load::CheckpointDirectory& source,
                                      const Recipe& recipe,
                                      const QuantizeOptions& options,
                                      ProgressSink& progress,
                                      const std::atomic<bool>& stop);

}  // namespace nibble::quant
