#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/engines/assess.h"
#include "nibble/quant/engines/tensor_parallel.h"
#include "nibble/quant/pipeline/plan/plan.h"
#include "nibble/quant/planning/probe.h"

namespace nibble::quant {

// Over how many ranks an engine can cut the result.
struct EngineDegrees {
  std::string engine;
  bool known = false;  // else every part was taken to have to divide
  std::string note;    // what is not known
  ParallelDegrees degrees;
};

// What a plan means for the machine that runs it and the engines that load
// its result.
struct Forecast {
  std::optional<TimeEstimate> time;
  std::filesystem::path disk;  // the directory whose disk was looked at
  std::uint64_t free_bytes = 0;
  std::vector<EngineReport> engines;    // those asked for, or all
  std::vector<EngineDegrees> parallel;  // likewise
  std::vector<std::int64_t> expert_degrees;
};

// Takes a part of a second, for the probe; reads headers but for a few tiles.
[[nodiscard]] Forecast forecast(const Plan& plan,
                                const load::CheckpointDirectory& source,
                                const QuantizeOptions& options);

// The keys that it adds to what quant::to_json gives of a plan: time, disk,
// engines, tensor_parallel, expert_parallel.
[[nodiscard]] nlohmann::json to_json(const Forecast& forecast,
                                     const Plan& plan);

}  // namespace nibble::quant
