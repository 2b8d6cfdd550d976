#include "nibble/cli/screen/session.h"

#include <utility>

#include "nibble/base/error.h"
#include "nibble/base/log.h"
#include "nibble/base/parallel.h"
#include "nibble/base/units.h"
#include "nibble/cli/screen/output.h"

namespace nibble::cli {

void add_global_options(CLI::App& app, Session& session) {
  app.add_option("--threads", session.threads, "Threads (all cores)")
      ->check(CLI::Range(1, 4096))
      ->type_name("N")
      ->envname("NIBBLE_THREADS")
      ->group("Global options");
  add_size(app,
           "--memory",
           session.memory_bytes,
           "Memory for quantizing (half of what is free)")
      ->group("Global options");
  app.add_option("--progress",
                 session.progress,
                 "auto: on a terminal; plain: a line every few seconds; none")
      ->check(CLI::IsMember({"auto", "plain", "none"}))
      ->type_name("MODE")
      ->group("Global options");
  CLI::Option* quiet =
      app.add_flag("--quiet", session.quiet, "Errors and results only")
          ->group("Global options");
  app.add_flag("--verbose", session.verbose, "Notes about every step")
      ->excludes(quiet)
      ->group("Global options");
  app.add_flag("--no-color", session.no_color, "No colors (as NO_COLOR)")
      ->group("Global options");
}

CLI::App& add_command(CLI::App& app,
                      Session& session,
                      const std::string& name,
                      const std::string& description,
                      const std::string& example,
                      std::function<int(Session&)> action) {
  CLI::App& command = *app.add_subcommand(name, description);
  command.fallthrough();
  command.footer("Example:\n  " + example + "\n");
  // A nested command's callback runs before its parent's and wins.
  command.callback([&session, action = std::move(action)] {
    if (!session.action) {
      session.action = action;
    }
  });
  return command;
}

CLI::Option* add_size(CLI::App& command,
                      const std::string& name,
                      std::uint64_t& bytes,
                      const std::string& description) {
  return command
      .add_option_function<std::string>(
          name,
          [name, &bytes](const std::string& text) {
            try {
              bytes = parse_size(text);
            } catch (const Error& error) {
              throw CLI::ValidationError(name, error.what());
            }
          },
          description)
      ->type_name("SIZE");
}

void require_one(const char* command, std::initializer_list<Given> options) {
  std::string all;
  std::string found;
  int count = 0;
  for (const Given& option : options) {
    all += all.empty() ? option.option : std::string(", ") + option.option;
    if (option.given) {
      found +=
          found.empty() ? option.option : std::string(", ") + option.option;
      ++count;
    }
  }
  if (count != 1) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   std::string("nibble ") + command + " --help",
                   "{}: found {}, expected one of {}",
                   command,
                   count == 0 ? "none" : found,
                   all);
  }
}

void start(const Session& session) {
  if (session.threads > 0) {
    set_thread_count(session.threads);
  }
  const LogLevel least = session.verbose ? LogLevel::kDebug
                         : session.quiet ? LogLevel::kWarning
                                         : LogLevel::kInfo;
  set_log_sink([least](LogLevel level, std::string_view text) {
    if (level >= least) {
      print_error(level == LogLevel::kWarning ? "warning: " + std::string(text)
                                              : std::string(text));
    }
  });
}

}  // namespace nibble::cli
