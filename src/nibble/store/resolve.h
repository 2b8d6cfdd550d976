#pragma once

#include <filesystem>
#include <string>

#include "nibble/store/store.h"

namespace nibble::store {

// The path that a command's argument stands for, the first of these that
// exists: the path itself, a version of the store, a downloaded model
// ("owner/name"), the same in the Hugging Face cache (used in place). Else
// kNotFound with the nearest name or `nibble pull` as a hint. Reads the
// environment; writes nothing.
[[nodiscard]] std::filesystem::path resolve_model(const std::string& text);

// The snapshot of a model in the Hugging Face cache (HF_HUB_CACHE, else
// HF_HOME/hub, else the user's cache directory): of the branch main, or the
// only one there is. Empty when there is none.
[[nodiscard]] std::filesystem::path cached_snapshot(const std::string& hub_id);

}  // namespace nibble::store
