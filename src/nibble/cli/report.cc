#include <filesystem>
#include <memory>
#include <string>

#include <fmt/core.h>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/units.h"
#include "nibble/cli/common/model_loader.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/progress.h"
#include "nibble/cli/screen/session.h"
#include "nibble/report/model_report.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string directory;
  std::string output;
};

int report(const Options& options, const Session& session) {
  // Known before a large checkpoint is read.
  NIBBLE_CHECK(!std::filesystem::is_directory(options.output),
               kInvalidArgument,
               "output {}: found a directory, expected the name of a file",
               options.output);
  report::ModelReport collected;
  {
    Progress progress(session);
    collected = report::collect_report(options.directory, progress);
  }
  const std::string page = report::render(collected);
  write_file_atomically(options.output, page);
  print(fmt::format("{}: {}\n", options.output, format_size(page.size())));
  return kDone;
}

}  // namespace

void add_report(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      add_command(app,
                  session,
                  "report",
                  "Writes a page about a checkpoint: errors, sizes, scales",
                  "nibble report fable-moe-int4 -o report.html",
                  [options](Session& now) {
                    resolve(options->directory);
                    return report(*options, now);
                  });
  command
      .add_option(
          "directory", options->directory, "Checkpoint directory, or a name")
      ->required()
      ->type_name("DIR|NAME");
  command
      .add_option("-o,--output",
                  options->output,
                  "HTML file that needs no other and no network")
      ->required()
      ->type_name("FILE");
}

}  // namespace nibble::cli
