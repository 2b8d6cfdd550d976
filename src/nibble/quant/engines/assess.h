#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/model/family.h"
#include "nibble/quant/core/number_spec.h"
#include "nibble/quant/engines/rules.h"

namespace nibble::quant {

// A linear of a planned checkpoint, as far as engines care. The views must
// outlive the call that it is given to.
struct LayerFacts {
  std::string_view module;
  model::Role role = model::Role::kOther;
  std::int64_t rows = 0;            // out
  std::int64_t columns = 0;         // in
  const LayerSpec* spec = nullptr;  // nullptr: stays dense
};

// What engines are asked to take. 0 = the config does not say.
struct ModelFacts {
  std::string family;
  std::string format;  // name of a quant::Format
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t vocabulary = 0;
  std::int64_t experts = 0;
  std::vector<LayerFacts> layers;
};

// The same answer for some layers.
struct EngineFinding {
  Verdict verdict = Verdict::kUnknown;
  std::size_t layers = 0;
  std::string module;  // the first of them
  std::string scheme;
  std::string reason;    // why, or what to know
  std::string expected;  // what the engine takes instead, where refused
  std::string needs;     // hardware or version
  std::string source;    // document and version
};

struct EngineReport {
  std::string engine;
  Verdict verdict = Verdict::kAccepted;  // the worst of the findings
  std::vector<EngineFinding> findings;   // the worst first
};

// What an engine does with a model, by the table of rules.h.
[[nodiscard]] EngineReport assess(const EngineCuts& engine,
                                  const ModelFacts& model);

// kUnsupported, naming a module, what was found, what the engine accepts and
// what to do, when one of the named engines refuses the model.
// kInvalidArgument for an unknown name.
void refuse_unless_accepted(std::span<const std::string> engine_names,
                            const ModelFacts& model);

}  // namespace nibble::quant
