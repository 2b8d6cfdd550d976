#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace nibble::cli {

// The manual page nibble(1) in man(7) macros, from the parser's own words.
[[nodiscard]] std::string manual_page(const CLI::App& app);

}  // namespace nibble::cli
