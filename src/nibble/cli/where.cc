#include <filesystem>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/store/resolve.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string name;
  bool json = false;
};

int where(const Options& options) {
  const std::string path =
      std::filesystem::absolute(store::resolve_model(options.name)).string();
  if (options.json) {
    print_json({{"path", path}});
  } else {
    print(path + "\n");
  }
  return kDone;
}

}  // namespace

void add_where(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      add_command(app,
                  session,
                  "where",
                  "Prints the directory of a name, alone on a line",
                  "nibble where fable-moe-int4",
                  [options](Session&) { return where(*options); });
  command
      .add_option("name",
                  options->name,
                  "Of a version or a downloaded model (OWNER/NAME)")
      ->required()
      ->type_name("NAME");
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
