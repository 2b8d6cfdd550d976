#include "nibble/cli/shell/complete.h"

#include "nibble/cli/screen/help.h"
#include "nibble/quant/recipe/recipe.h"

namespace nibble::cli {
namespace {

// The option that a word names, of this command or one above it.
const CLI::Option* find_option(const CLI::App& command,
                               const std::string& word) {
  for (const CLI::App* app = &command; app != nullptr;
       app = app->get_parent()) {
    if (const CLI::Option* option = app->get_option_no_throw(word)) {
      return option;
    }
  }
  return nullptr;
}

const CLI::App* find_command(const CLI::App& command, const std::string& word) {
  for (const CLI::App* below : shown_commands(command)) {
    if (below->get_name() == word) {
      return below;
    }
  }
  return nullptr;
}

class Completer {
 public:
  Completer(const std::string& typed, StoreNames store_names)
      : typed_(typed), store_names_(store_names) {}

  Candidates take() { return std::move(candidates_); }

  void add(const std::string& text, const std::string& description) {
    if (text.starts_with(typed_)) {
      candidates_.words.push_back({text, description});
    }
  }

  void add_options(const CLI::App& command) {
    for (const CLI::App* app = &command; app != nullptr;
         app = app->get_parent()) {
      for (const CLI::Option* option : app->get_options()) {
        // --version and the like of commands above do not belong here.
        const bool fits =
            app == &command || option->get_group() == "Global options";
        if (option->get_group().empty() || !fits) {
          continue;
        }
        for (const std::string& name : option->get_lnames()) {
          add("--" + name, option->get_description());
        }
      }
    }
  }

  // The values of an option or argument, by the names of its kinds or the
  // words themselves: "exact|reference", "DIR|FILE".
  void add_values(const CLI::Option& option) {
    const std::string kinds = value_name(option);
    for (std::size_t from = 0; from <= kinds.size();) {
      const std::size_t end = std::min(kinds.find('|', from), kinds.size());
      add_kind(kinds.substr(from, end - from), option);
      from = end + 1;
    }
  }

 private:
  void add_kind(const std::string& kind, const CLI::Option& option) {
    const bool names_model = kind == "SRC" || kind == "MODEL" || kind == "NAME";
    if (kind == "RECIPE") {
      for (const quant::BuiltinRecipe& recipe : quant::builtin_recipes()) {
        add(std::string(recipe.name), std::string(recipe.description));
      }
      candidates_.files = true;
    } else if (kind == "FILE") {
      candidates_.files = true;
    } else if (kind == "DIR" || kind == "OUT") {
      candidates_.directories = true;
    } else if (names_model) {
      // A file: gpt-fast's model.pth.
      candidates_.files = candidates_.files || kind != "NAME";
      if (kind != "NAME" || option.get_positional()) {
        for (const std::string& name : store_names_()) {
          add(name, "");
        }
      }
    } else if (kind.find_first_of("abcdefghijklmnopqrstuvwxyz") !=
               std::string::npos) {
      add(kind, "");
    }
  }

  const std::string& typed_;
  StoreNames store_names_;
  Candidates candidates_;
};

// The argument of a command that `taken` words stand before.
const CLI::Option* argument_at(const CLI::App& command, std::size_t taken) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) {
      continue;
    }
    if (taken == 0 || option->get_expected_max() > 1) {
      return option;
    }
    --taken;
  }
  return nullptr;
}

}  // namespace

Candidates complete(const CLI::App& app,
                    std::span<const std::string> words,
                    StoreNames store_names) {
  const CLI::App* command = &app;
  const CLI::Option* waiting = nullptr;  // for its value
  std::size_t arguments = 0;
  std::string typed = words.empty() ? "" : words.back();
  for (const std::string& word :
       words.first(words.empty() ? 0 : words.size() - 1)) {
    if (word == "=") {  // bash makes three words of --name=value
      continue;
    }
    if (waiting != nullptr) {
      waiting = nullptr;
    } else if (word.starts_with("-")) {
      const CLI::Option* option = find_option(*command, word);
      waiting =
          option != nullptr && option->get_type_size() != 0 ? option : nullptr;
    } else if (const CLI::App* below = find_command(*command, word)) {
      command = below;
      arguments = 0;
    } else {
      ++arguments;
    }
  }
  if (typed == "=") {
    typed.clear();
  }

  Completer completer(typed, store_names);
  if (waiting != nullptr) {
    completer.add_values(*waiting);
  } else if (typed.starts_with("-")) {
    completer.add_options(*command);
  } else {
    for (const CLI::App* below : shown_commands(*command)) {
      completer.add(below->get_name(), below->get_description());
    }
    if (const CLI::Option* argument = argument_at(*command, arguments)) {
      completer.add_values(*argument);
    }
  }
  return completer.take();
}

}  // namespace nibble::cli
