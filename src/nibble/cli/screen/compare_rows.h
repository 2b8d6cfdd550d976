#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace nibble::cli {

// How the weights of a version are stored, for a row of `nibble compare`:
// scheme ("int4", "source" in its own type: "bf16"), bits of a code, group
// (columns, "channel" ...) and activations ("none", "int8 per token" ...).
// Versions with several schemes name all of them. Reads headers only.
[[nodiscard]] nlohmann::json scheme_columns(
    const std::filesystem::path& version);

// The rows as a table for people.
[[nodiscard]] std::string compare_text(const nlohmann::json& rows);

// The same as a page, with size against quality; model is its title.
[[nodiscard]] std::string compare_page(const std::string& model,
                                       const std::string& text_file,
                                       const nlohmann::json& rows);

}  // namespace nibble::cli
