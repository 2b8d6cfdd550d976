#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>

#include <CLI/CLI.hpp>

namespace nibble::cli {

// What the global options say, and the command that the line names.
struct Session {
  int threads = 0;                 // 0 = all cores
  std::uint64_t memory_bytes = 0;  // 0 = half of what is available
  bool quiet = false;
  bool verbose = false;
  bool no_color = false;
  std::string progress = "auto";  // auto, plain, none

  // Set by parsing; runs the command and gives the exit status.
  std::function<int(Session&)> action;
};

// Adds the global options, which may stand before or after the command.
void add_global_options(CLI::App& app, Session& session);

// Adds a command whose help ends with example and which runs action.
CLI::App& add_command(CLI::App& app,
                      Session& session,
                      const std::string& name,
                      const std::string& description,
                      const std::string& example,
                      std::function<int(Session&)> action);

// An option that takes a size such as 512MiB.
CLI::Option* add_size(CLI::App& command,
                      const std::string& name,
                      std::uint64_t& bytes,
                      const std::string& description);

// Throws kInvalidArgument unless exactly one of the options was given.
struct Given {
  const char* option;
  bool given;
};

void require_one(const char* command, std::initializer_list<Given> options);

// Applies threads and the log sink; called once before the action.
void start(const Session& session);

// One file a command; each adds its command to app.
void add_quantize(CLI::App& app, Session& session);
void add_generate(CLI::App& app, Session& session);
void add_chat(CLI::App& app, Session& session);
void add_eval(CLI::App& app, Session& session);
void add_logits(CLI::App& app, Session& session);
void add_tokenize(CLI::App& app, Session& session);
void add_template(CLI::App& app, Session& session);
void add_inspect(CLI::App& app, Session& session);
void add_verify(CLI::App& app, Session& session);
void add_report(CLI::App& app, Session& session);
void add_compare(CLI::App& app, Session& session);
void add_convert(CLI::App& app, Session& session);
void add_recipes(CLI::App& app, Session& session);
void add_clean(CLI::App& app, Session& session);
void add_shell_commands(CLI::App& app, Session& session);
void add_engines(CLI::App& app, Session& session);
void add_list(CLI::App& app, Session& session);
void add_where(CLI::App& app, Session& session);
void add_remove(CLI::App& app, Session& session);
void add_pull(CLI::App& app, Session& session);

}  // namespace nibble::cli
