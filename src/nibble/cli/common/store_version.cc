#include "nibble/cli/common/store_version.h"

#include <fmt/core.h>

#include "nibble/base/error.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/progress.h"
#include "nibble/store/resolve.h"

namespace nibble::cli {

store::MadeVersion store_version(const std::string& model,
                                 const std::string& recipe,
                                 const Session& session,
                                 const std::atomic<bool>& stop,
                                 quant::QuantizeOptions options) {
  const quant::Recipe loaded = quant::load_recipe(recipe);
  const store::Store place = store::user_store();
  std::filesystem::path source = model;
  try {
    source = store::resolve_model(model);
  } catch (const Error&) {
    // A source that is gone may have left a version behind.
    if (store::is_hub_id(model)) {
      source = place.models() / model;
    }
    if (!store::was_made_from(place, source)) {
      throw;
    }
  }
  options.memory_bytes = session.memory_bytes;
  Progress progress(session);
  const auto say = [&session](std::string_view text) {
    if (!session.quiet) {
      print_error(text);
    }
  };
  return store::find_or_make(
      place,
      {.source = source, .recipe = loaded, .options = std::move(options)},
      progress,
      stop,
      say);
}

}  // namespace nibble::cli
