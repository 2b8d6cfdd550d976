#include "nibble/cli/screen/help.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace nibble::cli {
// CLI11 appends the names of checks to the type: "MODE:{exact,reference}".
std::string value_name(const CLI::Option& option) {
  if (option.get_type_size() == 0) {
    return "";
  }
  const std::string type = option.get_type_name();
  const std::size_t check = type.find(':');
  if (check == std::string::npos || type.compare(check, 2, ":{") != 0) {
    return type.substr(0, check);
  }
  std::string words = type.substr(check + 2, type.size() - check - 3);
  std::replace(words.begin(), words.end(), ',', '|');
  return words;
}

std::string option_name(const CLI::Option& option) {
  if (option.get_positional()) {
    return value_name(option);
  }
  const std::string value = value_name(option);
  std::string name = option.get_name(/*positional=*/false, /*all=*/true);
  if (const std::size_t comma = name.find(','); comma != std::string::npos) {
    name.insert(comma + 1, " ");
  }
  return value.empty() ? name : name + " " + value;
}

std::string option_text(const CLI::Option& option) {
  std::string text = option.get_description();
  if (option.get_required() && option.nonpositional()) {
    text += " (required)";
  }
  if (!option.get_default_str().empty()) {
    text += " (" + option.get_default_str() + ")";
  }
  if (!option.get_envname().empty()) {
    text += " [" + option.get_envname() + "]";
  }
  return text;
}

std::vector<const CLI::App*> shown_commands(const CLI::App& command) {
  // Commands that only scripts call have no group.
  return command.get_subcommands(
      [](const CLI::App* below) { return !below->get_group().empty(); });
}

namespace {

// Two columns, the second at a fixed place; long names get a line alone.
std::string line(const std::string& name, const std::string& text) {
  constexpr std::size_t kColumn = 24;
  if (name.size() + 2 < kColumn) {
    return fmt::format("  {:<{}}{}\n", name, kColumn - 2, text);
  }
  return fmt::format("  {}\n{:<{}}{}\n", name, "", kColumn, text);
}

std::string usage(const CLI::App& command) {
  std::string text = full_name(command);
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) {
      const std::string name = value_name(*option);
      const bool many = option->get_expected_max() > 1;
      text += option->get_required() ? " " + name
                                     : " [" + name + (many ? " ...]" : "]");
    } else if (option->get_required()) {
      text += " " + option_name(*option);
    }
  }
  if (!shown_commands(command).empty()) {
    text +=
        command.get_require_subcommand_min() == 0 ? " [COMMAND]" : " COMMAND";
  }
  return text + " [OPTIONS]\n";
}

// Options of one group; "" is the group of hidden ones.
std::string options_of(const CLI::App& command, const std::string& group) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group() == group && !option->get_positional()) {
      text += line(option_name(*option), option_text(*option));
    }
  }
  return text.empty() ? "" : "\n" + group + ":\n" + text;
}

}  // namespace

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name()
                           : full_name(*parent) + " " + command.get_name();
}

std::string help_text(const CLI::App& command) {
  std::string text =
      "Usage: " + usage(command) + "\n" + command.get_description() + "\n";
  std::string arguments;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) {
      arguments += line(option_name(*option), option_text(*option));
    }
  }
  text += arguments.empty() ? "" : "\n" + arguments;
  const std::vector<const CLI::App*> commands = shown_commands(command);
  if (!commands.empty()) {
    text += "\nCommands:\n";
    for (const CLI::App* below : commands) {
      text += line(below->get_name(), below->get_description());
    }
  }
  text += options_of(command, "Options");
  text += options_of(command, "Global options");
  if (command.get_parent() != nullptr) {
    text += line("", "and those of all commands: nibble --help");
  }
  return text + "\n" + command.get_footer();
}

}  // namespace nibble::cli
