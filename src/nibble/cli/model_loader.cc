#include "nibble/cli/model_loader.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/error.h"
#include "nibble/load/load_model.h"
#include "nibble/quant/attach/attach.h"
#include "nibble/quant/core/registry.h"

namespace nibble::cli {
namespace {

void set_int4_layout(const std::string& layout,
                     const std::filesystem::path& path,
                     nlohmann::json& config) {
  const auto entry = config.find("quantization_config");
  if (entry == config.end() || !entry->is_object() ||
      entry->value("quant_method", "") != "gpt-fast") {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "leave --int4-layout out",
                   "--int4-layout: found {}, expected no such option for {}, "
                   "which is no quantized file of gpt-fast",
                   layout,
                   path.string());
  }
  (*entry)["int4_layout"] = layout;
}

}  // namespace

void add_load_options(CLI::App& command, LoadOptions& options) {
  command
      .add_option("--int4-layout",
                  options.int4_layout,
                  "Order of int4 codes that gpt-fast's file does not tell")
      ->check(CLI::IsMember({"bytes", "cpu-avx512", "cpu-avx2"}))
      ->type_name("ORDER");
}

std::filesystem::path model_directory(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) {
    return path;
  }
  return path.has_parent_path() ? path.parent_path()
                                : std::filesystem::path(".");
}

LoadedModel load_for_running(const std::filesystem::path& path,
                             const LoadOptions& options) {
  LoadedModel loaded;
  loaded.checkpoint = load::open_checkpoint(path);
  if (!options.int4_layout.empty()) {
    set_int4_layout(options.int4_layout, path, *loaded.checkpoint.config);
  }
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
