#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace nibble::cli {

// "nibble recipes show": the names from the program down to this command.
[[nodiscard]] std::string full_name(const CLI::App& command);

// What --help prints of a command: usage, what it does, arguments, options
// with their defaults, commands below it, and the footer.
[[nodiscard]] std::string help_text(const CLI::App& command);

}  // namespace nibble::cli
