#pragma once

#include <optional>

#include <CLI/CLI.hpp>

namespace nibble::cli {

// Parses the command line into app's options. Gives the exit status when the
// program is to end now: after --help or --version, or for wrong use, which it
// explains on standard error with the nearest right word.
[[nodiscard]] std::optional<int> parse(CLI::App& app,
                                       int argc,
                                       const char* const* argv);

}  // namespace nibble::cli
