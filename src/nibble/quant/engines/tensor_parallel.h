#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nibble/quant/engines/assess.h"
#include "nibble/quant/engines/rules.h"

namespace nibble::quant {

// A number of ranks over which a model cannot be cut, and why.
struct RefusedDegree {
  std::int64_t degree = 0;
  std::string module;  // or the key of config.json that does not divide
  std::string reason;
};

struct ParallelDegrees {
  std::vector<std::int64_t> degrees;  // that load, ascending, with 1
  // Powers of two up to the largest that was tried which do not load.
  std::vector<RefusedDegree> refused;
};

// Degrees of tensor parallelism that load. Matrices whose output is cut (q, k,
// v, gate, up, the head) need rows that divide; those whose input is cut (o,
// down) need parts that end at whole groups or blocks and whole packed words.
// Heads follow the engine's rule; nothing is taken for granted of an engine
// whose cuts are not known: every part must divide.
[[nodiscard]] ParallelDegrees parallel_degrees(const EngineCuts& engine,
                                               const ModelFacts& model);

// Degrees over which the experts of a layer can be dealt out whole; empty for
// a model without experts.
[[nodiscard]] std::vector<std::int64_t> expert_degrees(const ModelFacts& model);

}  // namespace nibble::quant
