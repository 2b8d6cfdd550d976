#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/pipeline/plan/plan.h"

namespace nibble::quant {

// Speed of one way of encoding, in bytes of source a second, all threads
// together: encode, pack, measure the error, checksums.
struct EncodeRate {
  std::string scheme;
  bool input_major = false;  // stored so: tiles are transposed
  double bytes_per_second = 0;
};

// How long a plan may take on this machine, from a probe of a part of a second.
struct TimeEstimate {
  double seconds = 0;  // of the whole job
  int threads = 0;
  // What it was measured from.
  std::uint64_t read_bytes = 0;     // of the source's own weights
  std::uint64_t written_bytes = 0;  // to a file without a name, and synced
  std::filesystem::path written_to;
  double probe_seconds = 0;
  double read_bytes_per_second = 0;
  double write_bytes_per_second = 0;
  double check_bytes_per_second = 0;  // re-reading the result
  std::vector<EncodeRate> encode;
};

// Reads, encodes and packs a few tiles of the source with the schemes of the
// plan, and writes some megabytes to a file without a name beside output (in
// the system's temporary directory when output is empty). Nothing when the
// plan has no weight of finite values among those that it tries. kIo when the
// source or the disk fails.
[[nodiscard]] std::optional<TimeEstimate> probe_time(
    const Plan& plan,
    const load::CheckpointDirectory& source,
    const std::filesystem::path& output);

}  // namespace nibble::quant
