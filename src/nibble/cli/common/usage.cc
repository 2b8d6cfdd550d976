#include "nibble/cli/common/usage.h"

#include <string>
#include <vector>

#include <fmt/core.h>

#include "nibble/base/units.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/help.h"
#include "nibble/cli/screen/output.h"

namespace nibble::cli {
namespace {

// The innermost command that the line names: app itself when none.
const CLI::App& innermost(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : innermost(*parsed.back());
}

// Where an error is: "quantize", or "command line" when no command is known.
std::string place(const CLI::App& command) {
  const std::string name = full_name(command);
  const std::size_t blank = name.find(' ');
  return blank == std::string::npos ? "command line" : name.substr(blank + 1);
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* app = &command; app != nullptr;
       app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        names.push_back("--" + name);
      }
    }
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : shown_commands(app)) {
    names.push_back(command->get_name());
  }
  return names;
}

// Says what is wrong with the line; the second line says what to do.
void explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  const std::vector<std::string> unknown = app.remaining(true);
  std::string hint = full_name(command) + " --help";
  if (unknown.empty()) {
    print_error(fmt::format("nibble: {}: {}", place(command), error.what()));
  } else if (const std::string& word = unknown.front(); word.starts_with("-")) {
    print_error(fmt::format("nibble: {}: found {}, expected one of its options",
                            place(command),
                            printable(word)));
    const std::string name = word.substr(0, word.find('='));
    if (const std::string near = nearest_word(name, option_names(command));
        !near.empty()) {
      hint = fmt::format("did you mean {}? ({})", near, hint);
    }
  } else if (!command_names(command).empty()) {
    print_error(fmt::format("nibble: {}: found {}, expected a command",
                            place(command),
                            printable(word)));
    if (const std::string near = nearest_word(word, command_names(command));
        !near.empty()) {
      hint = fmt::format(
          "did you mean {} {}? ({})", full_name(command), near, hint);
    }
  } else {
    print_error(fmt::format("nibble: {}: found {} after everything it takes",
                            place(command),
                            printable(word)));
  }
  print_error("hint: " + hint);
}

}  // namespace

std::optional<int> parse(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    print(help_text(innermost(app)));
  } catch (const CLI::CallForVersion& version) {
    print(std::string(version.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    explain(app, error);
    return kWrongUse;
  }
  flush_output();
  return kDone;
}

}  // namespace nibble::cli
