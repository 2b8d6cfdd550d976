#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace nibble::cli {

// "nibble recipes show": the names from the program down to this command.
[[nodiscard]] std::string full_name(const CLI::App& command);

// What stands for the value of an option or argument: "FILE", or the words that
// it may be, "exact|reference". "" for a flag.
[[nodiscard]] std::string value_name(const CLI::Option& option);
// "-o, --output OUT"; for an argument its value's name.
[[nodiscard]] std::string option_name(const CLI::Option& option);
// What an option does, with its default and environment variable.
[[nodiscard]] std::string option_text(const CLI::Option& option);

// The commands below one that are shown to people, in the order of adding.
[[nodiscard]] std::vector<const CLI::App*> shown_commands(
    const CLI::App& command);

// What --help prints of a command: usage, what it does, arguments, options
// with their defaults, commands below it, and the footer.
[[nodiscard]] std::string help_text(const CLI::App& command);

}  // namespace nibble::cli
