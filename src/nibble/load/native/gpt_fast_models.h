#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

namespace nibble::load {

// The architecture that gpt-fast takes from the name of a checkpoint's
// directory, as a params.json: an exact name, else the longest known name that
// the directory's name contains, whatever the case. kNotFound, with the names,
// when none fits; a tie of the two longest is kInvalidArgument.
// Source: docs/formats/gpt-fast.md, "Known models".
[[nodiscard]] nlohmann::json gpt_fast_params(
    const std::filesystem::path& directory);

}  // namespace nibble::load
