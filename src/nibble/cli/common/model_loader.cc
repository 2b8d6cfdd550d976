#include "nibble/cli/common/model_loader.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/error.h"
#include "nibble/cli/common/interrupt.h"
#include "nibble/cli/common/store_version.h"
#include "nibble/cli/screen/output.h"
#include "nibble/load/load_model.h"
#include "nibble/load/native/native_form.h"
#include "nibble/quant/attach/attach.h"
#include "nibble/quant/attach/encode_on_load.h"
#include "nibble/quant/core/registry.h"
#include "nibble/store/resolve.h"

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

std::unique_ptr<quant::EncodingLayerBuilder> encode_on_load(
    const LoadedModel& loaded, const std::string& scheme) {
  if (loaded.quantized) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "leave --quantize out: the codes that are there run",
                   "--quantize: found a checkpoint that is already quantized, "
                   "expected a dense one");
  }
  const std::int64_t ranks =
      load::default_ranks(loaded.checkpoint, load::NativeLayout::kMeta);
  return std::make_unique<quant::EncodingLayerBuilder>(
      loaded.checkpoint, quant::choose_mixed(scheme, loaded.checkpoint, ranks));
}

// Whether --quantize names what is done while loading, not a recipe.
bool encodes_on_load(const LoadOptions& options) {
  return options.quantize == "int4_mixed" || options.quantize == "fp8_mixed";
}

}  // namespace

void resolve(std::string& model) {
  model = store::resolve_model(model).string();
}

void add_load_options(CLI::App& command, LoadOptions& options) {
  command
      .add_option("--quantize",
                  options.quantize,
                  "Run the store's version; int4_mixed, fp8_mixed: encode now")
      ->type_name("RECIPE");
  command
      .add_option("--int4-layout",
                  options.int4_layout,
                  "Order of int4 codes that gpt-fast's file does not tell")
      ->check(CLI::IsMember({"bytes", "cpu-avx512", "cpu-avx2"}))
      ->type_name("ORDER");
}

void resolve_to_run(std::string& model,
                    const LoadOptions& options,
                    const Session& session) {
  if (options.quantize.empty() || encodes_on_load(options)) {
    resolve(model);
    return;
  }
  set_interrupt_hint(kGoOnHint);
  const InterruptScope scope;
  const store::MadeVersion version =
      store_version(model, options.quantize, session, scope.flag());
  if (!session.quiet) {
    print_error((version.made ? "made and using " : "using ") + version.name +
                " of the store");
  }
  model = version.path.string();
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
  std::unique_ptr<quant::EncodingLayerBuilder> encoding;
  if (encodes_on_load(options)) {
    encoding = encode_on_load(loaded, options.quantize);
    builders.push_back(encoding.get());
  }
  if (loaded.quantized) {
    packed = std::make_unique<quant::QuantizedLayerBuilder>(*loaded.quantized);
    builders.push_back(packed.get());
  }
  loaded.model =
      load::load_model(loaded.checkpoint, builders, backend::cpu_backend());
  return loaded;
}

}  // namespace nibble::cli
