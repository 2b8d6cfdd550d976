#pragma once

#include <nlohmann/json_fwd.hpp>

#include "nibble/base/function_ref.h"

namespace nibble::cli {

// Runs work in a process of its own and gives what it returns, so that peak
// memory is that of the work alone. Rethrows an Error of the work; kInternal
// when the process ends in another way. Only before this process has started
// threads.
[[nodiscard]] nlohmann::json run_in_child(FunctionRef<nlohmann::json()> work);

}  // namespace nibble::cli
