#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "nibble/base/progress.h"
#include "nibble/quant/pipeline/quantize.h"
#include "nibble/store/store.h"

namespace nibble::store {

// What find_or_make gave.
struct MadeVersion {
  std::string name;
  std::filesystem::path path;
  bool made = false;  // false: it was there already
  std::size_t resumed_parts = 0;
  std::vector<std::string> notes;  // of the run that made it
};

struct MakeRequest {
  // As resolve_model gives it, or where a source once was.
  std::filesystem::path source;
  const quant::Recipe& recipe;
  // Its output is chosen here; overwrite makes the version anew.
  quant::QuantizeOptions options = {};
};

// The version of source in the store that holds exactly what quantizing it with
// this recipe would give, made now when there is none. Equal content has equal
// keys (quant::content_key); a version of the same name with another key stays,
// and the new one gets a part of its key as a suffix. Two processes that want
// one version make it once: the second waits, and says so through say. A source
// that is gone is not needed when a version was made from it at that path.
// Throws what quant::make_plan and quant::quantize throw; reads only, when the
// version exists.
[[nodiscard]] MadeVersion find_or_make(
    const Store& store,
    const MakeRequest& request,
    ProgressSink& progress,
    const std::atomic<bool>& stop,
    const std::function<void(std::string_view)>& say);

// Whether a version of the store was made from a source at this path.
[[nodiscard]] bool was_made_from(const Store& store,
                                 const std::filesystem::path& source);

// "fable-moe-int4": what a version is called unless that name is taken.
[[nodiscard]] std::string version_name(const Store& store,
                                       const std::filesystem::path& source,
                                       const quant::Recipe& recipe);

}  // namespace nibble::store
