#include "nibble/cli/model_loader.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/load/load_model.h"
#include "nibble/quant/attach/attach.h"
#include "nibble/quant/core/registry.h"

namespace nibble::cli {

LoadedModel load_for_running(const std::filesystem::path& path) {
  LoadedModel loaded;
  loaded.checkpoint = load::open_checkpoint(path);
  loaded.quantized = quant::open_quantized(*loaded.checkpoint.config,
                                           *loaded.checkpoint.reader);
  std::vector<const load::LayerBuilder*> builders;
  std::unique_ptr<quant::QuantizedLayerBuilder> packed;
  if (loaded.quantized) {
    packed = std::make_unique<quant::QuantizedLayerBuilder>(*loaded.quantized);
    builders.push_back(packed.get());
  }
  loaded.model =
      load::load_model(loaded.checkpoint, builders, backend::cpu_backend());
  return loaded;
}

}  // namespace nibble::cli
