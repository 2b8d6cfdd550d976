// What packages and shells ask the program for: completion scripts, what may
// follow on a command line, and the manual page.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/cli/shell/complete.h"
#include "nibble/cli/shell/manual.h"
#include "nibble/cli/shell/scripts.h"
#include "nibble/store/catalogue.h"

namespace nibble::cli {
namespace {

void print_candidates(const Candidates& candidates) {
  for (const Candidates::Word& word : candidates.words) {
    print(word.description.empty()
              ? word.text + "\n"
              : word.text + "\t" + word.description + "\n");
  }
  if (candidates.files) {
    print(":files\n");
  }
  if (candidates.directories) {
    print(":directories\n");
  }
}

std::vector<std::string> names_in_store() {
  const std::optional<store::Store> place = store::find_user_store();
  return place ? store::names(*place) : std::vector<std::string>();
}

}  // namespace

void add_shell_commands(CLI::App& app, Session& session) {
  auto shell = std::make_shared<std::string>();
  CLI::App& script = add_command(
      app,
      session,
      "completions",
      "Prints the completion script of a shell",
      "nibble completions bash > ~/.local/share/bash-completion/completions/"
      "nibble",
      [shell](Session&) {
        print(completion_script(*shell));
        return kDone;
      });
  script.add_option("shell", *shell, "The shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("SHELL");

  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App& completing =
      add_command(app,
                  session,
                  "complete",
                  "Prints what may follow on a command line, for the scripts",
                  "nibble complete -- quantize --rec",
                  [words, &app](Session&) {
                    print_candidates(
                        complete(app, *words, [] { return names_in_store(); }));
                    return kDone;
                  });
  completing.group("");
  completing.add_option("words", *words, "Words after the program's name")
      ->type_name("WORD");

  add_command(app,
              session,
              "manual",
              "Prints the manual page",
              "nibble manual > nibble.1",
              [&app](Session&) {
                print(manual_page(app));
                return kDone;
              })
      .group("");
}

}  // namespace nibble::cli
