#include <exception>
#include <filesystem>
#include <new>
#include <string>

#include <fmt/core.h>

#include "nibble/base/error.h"
#include "nibble/cli/common/interrupt.h"
#include "nibble/cli/common/usage.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"

namespace nibble::cli {
namespace {

int run(int argc, const char* const* argv) {
  Session session;
  CLI::App app("Quantizes LLM checkpoints, runs them, and proves the result.",
               "nibble");
  app.set_version_flag("--version", "nibble " NIBBLE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Example:\n  nibble quantize models/fable-moe --recipe int4 -o out\n"
      "\nnibble COMMAND --help explains a command.\n");
  add_global_options(app, session);
  add_quantize(app, session);
  add_generate(app, session);
  add_chat(app, session);
  add_eval(app, session);
  add_logits(app, session);
  add_tokenize(app, session);
  add_template(app, session);
  add_inspect(app, session);
  add_verify(app, session);
  add_report(app, session);
  add_compare(app, session);
  add_convert(app, session);
  add_recipes(app, session);
  add_clean(app, session);
  add_shell_commands(app, session);
  add_engines(app, session);
  add_list(app, session);
  add_where(app, session);
  add_remove(app, session);
  add_pull(app, session);

  if (const std::optional<int> status = parse(app, argc, argv)) {
    return *status;
  }
  start(session);
  const int status = session.action(session);
  flush_output();
  return status;
}

int fail_with(int status, const std::string& what, const std::string& hint) {
  print_error("nibble: " + what);
  if (!hint.empty()) {
    print_error("hint: " + hint);
  }
  return status;
}

}  // namespace
}  // namespace nibble::cli

int main(int argc, char** argv) {
  namespace cli = nibble::cli;
  cli::install_signal_handlers();
  try {
    return cli::run(argc, argv);
  } catch (const nibble::Error& error) {
    return cli::fail_with(
        cli::exit_code(error.code()), error.what(), error.hint());
  } catch (const cli::ClosedPipe&) {
    return cli::kFailed;
  } catch (const std::bad_alloc&) {
    return cli::fail_with(cli::kFailed,
                          "out of memory",
                          "close other programs, or lower --memory");
  } catch (const std::filesystem::filesystem_error& error) {
    return cli::fail_with(cli::kFailed, error.what(), "");
  } catch (const std::exception& error) {
    return cli::fail_with(
        cli::kFailed,
        fmt::format("internal error: {}", error.what()),
        "this is a bug of nibble: please report it with the command used");
  }
}
