#include "nibble/cli/shell/manual.h"

#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "nibble/cli/screen/help.h"

namespace nibble::cli {
namespace {

// Text as troff shows it: a backslash and a hyphen are spelled out, and a line
// must not begin like a request.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (out.empty() || out.back() == '\n') {
      out += c == '.' || c == '\'' ? "\\&" : "";
    }
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string bold(std::string_view text) {
  return "\\fB" + escaped(text) + "\\fR";
}

std::string entry(const std::string& term, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", bold(term), escaped(text));
}

std::string arguments(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) {
      text += entry(option_name(*option), option_text(*option));
    }
  }
  return text;
}

std::string options(const CLI::App& command, const std::string& group) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional() && option->get_group() == group) {
      text += entry(option_name(*option), option_text(*option));
    }
  }
  return text;
}

// The lines of a footer "Example:\n  nibble ...": as they are typed.
std::string example(const CLI::App& command) {
  const std::string footer = command.get_footer();
  const std::size_t begin = footer.find('\n');
  return begin == std::string::npos
             ? ""
             : ".PP\nExample:\n.PP\n.nf\n" +
                   escaped(std::string_view(footer).substr(begin + 1)) +
                   ".fi\n";
}

std::string command_section(const CLI::App& command) {
  std::string text = fmt::format(".SS {}\n{}.\n",
                                 escaped(full_name(command)),
                                 escaped(command.get_description()));
  text += arguments(command) + options(command, "Options") + example(command);
  for (const CLI::App* below : shown_commands(command)) {
    text += command_section(*below);
  }
  return text;
}

constexpr std::pair<const char*, const char*> kEnvironment[] = {
    {"NIBBLE_HOME",
     "The store of models; else $XDG_DATA_HOME/nibble, else "
     "~/.local/share/nibble."},
    {"NIBBLE_THREADS", "As --threads."},
    {"NIBBLE_ISA",
     "The highest set of instructions to use: avx512, avx2 or portable."},
    {"HF_ENDPOINT, HF_TOKEN, HF_HOME",
     "The hub that pull asks, its access token, and the cache that is looked "
     "into for models."},
    {"NO_COLOR", "As --no-color."}};

constexpr std::pair<const char*, const char*> kStatus[] = {
    {"0", "Done."},
    {"1", "Failed: reading or writing, a full disk, an interruption."},
    {"2", "Wrong use of the command line."},
    {"3", "A file, model or recipe is refused."},
    {"4", "A check did not hold (verify; compare with a threshold)."}};

}  // namespace

std::string manual_page(const CLI::App& app) {
  std::string page = fmt::format(
      ".TH NIBBLE 1 \"\" \"nibble {}\" \"User Commands\"\n"
      ".SH NAME\nnibble \\- quantize large language models, run them, and "
      "prove the result\n"
      ".SH SYNOPSIS\n.B nibble\n.I COMMAND\n.RI [ OPTION ...]\n"
      ".SH DESCRIPTION\n{}\n",
      NIBBLE_VERSION,
      escaped(app.get_description()));
  page += ".SH COMMANDS\n";
  for (const CLI::App* command : shown_commands(app)) {
    page += command_section(*command);
  }
  page += ".SH GLOBAL OPTIONS\nThey stand before or after the command.\n" +
          options(app, "Global options");
  page += ".SH ENVIRONMENT\n";
  for (const auto& [name, text] : kEnvironment) {
    page += entry(name, text);
  }
  page += ".SH EXIT STATUS\n";
  for (const auto& [status, text] : kStatus) {
    page += entry(status, text);
  }
  return page;
}

}  // namespace nibble::cli
