#pragma once

#include <atomic>
#include <string>

#include "nibble/cli/screen/session.h"
#include "nibble/store/make.h"

namespace nibble::cli {

// The version of model in the store that a recipe (a name, a file or JSON)
// makes: found, or made now; progress and waiting are told on standard error.
// model: a path, a name, or where a source once was. options: as MakeRequest's;
// the session's memory applies. stop leaves partial work that the next call
// goes on with.
[[nodiscard]] store::MadeVersion store_version(
    const std::string& model,
    const std::string& recipe,
    const Session& session,
    const std::atomic<bool>& stop,
    quant::QuantizeOptions options = {});

}  // namespace nibble::cli
