#include "nibble/store/hub/pull.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/units.h"
#include "nibble/cli/common/interrupt.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/progress.h"
#include "nibble/cli/screen/session.h"

namespace nibble::cli {
namespace {

namespace hub = store::hub;

struct Options {
  hub::PullOptions pull;
  bool json = false;
};

void read_environment(hub::HubOptions& options) {
  const char* endpoint = std::getenv("HF_ENDPOINT");
  if (endpoint != nullptr && *endpoint != '\0') {
    options.endpoint = endpoint;
  }
  const char* token = std::getenv("HF_TOKEN");
  if (token != nullptr) {
    options.token = token;
  }
}

std::string to_text(const std::string& id, const hub::PullReport& report) {
  std::string text = fmt::format("{}: {} files, {}{}\n",
                                 id,
                                 report.files,
                                 format_size(report.bytes),
                                 report.downloaded ? "" : ", there already");
  if (report.left_out > 0) {
    text += fmt::format(
        "note: {} files of the model were not wanted (--include chooses)\n",
        report.left_out);
  }
  for (const std::string& file : report.unchecked) {
    text += fmt::format("note: {}: the hub tells no digest to compare\n", file);
  }
  return text + report.path.string() + "\n";
}

int pull(const Options& options, const Session& session) {
  hub::PullOptions wanted = options.pull;
  read_environment(wanted.hub);
  set_interrupt_hint("the same command goes on from here");
  const InterruptScope scope;
  Progress progress(session);
  const hub::PullReport report = hub::pull(store::user_store(),
                                           wanted,
                                           progress,
                                           scope.flag(),
                                           [&session](std::string_view text) {
                                             if (!session.quiet) {
                                               print_error(text);
                                             }
                                           });
  if (options.json) {
    print_json({{"path", report.path.string()},
                {"bytes", report.bytes},
                {"files", report.files},
                {"commit", report.commit},
                {"downloaded", report.downloaded},
                {"left_out", report.left_out},
                {"unchecked", report.unchecked}});
  } else {
    print(to_text(wanted.id, report));
  }
  return kDone;
}

}  // namespace

void add_pull(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      add_command(app,
                  session,
                  "pull",
                  "Downloads a model from the Hugging Face hub into the store",
                  "nibble pull meta-llama/Llama-3.2-1B --exclude 'original/*'",
                  [options](Session& now) { return pull(*options, now); });
  command.add_option("model", options->pull.id, "Name on the hub")
      ->required()
      ->type_name("OWNER/NAME");
  command
      .add_option("--revision", options->pull.revision, "Branch, tag or commit")
      ->capture_default_str()
      ->type_name("R");
  command
      .add_option("--include",
                  options->pull.include,
                  "Only files that fit (all but weights in other forms);"
                  " repeatable")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command
      .add_option(
          "--exclude", options->pull.exclude, "No files that fit; repeatable")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
