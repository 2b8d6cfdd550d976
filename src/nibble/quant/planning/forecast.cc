#include "nibble/quant/planning/forecast.h"

#include <algorithm>

#include "nibble/base/files/file.h"
#include "nibble/quant/pipeline/plan/engine_facts.h"
#include "nibble/quant/planning/write_probe.h"

namespace nibble::quant {

Forecast forecast(const Plan& plan,
                  const load::CheckpointDirectory& source,
                  const QuantizeOptions& options) {
  Forecast result;
  result.time = probe_time(plan, source, options.output);
  result.disk = existing_directory(
      options.output.empty() ? std::filesystem::path(".") : options.output);
  result.free_bytes = free_disk_bytes(result.disk);
  const ModelFacts facts = model_facts(plan, source);
  for (const EngineCuts& engine : engines()) {
    if (!options.engines.empty() &&
        std::find(options.engines.begin(),
                  options.engines.end(),
                  engine.engine) == options.engines.end()) {
      continue;
    }
    result.engines.push_back(assess(engine, facts));
    result.parallel.push_back({std::string(engine.engine),
                               engine.known,
                               std::string(engine.note),
                               parallel_degrees(engine, facts)});
  }
  result.expert_degrees = expert_degrees(facts);
  return result;
}

}  // namespace nibble::quant
