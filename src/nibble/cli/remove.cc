#include "nibble/store/remove.h"

#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/units.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string name;
  bool all = false;
  bool yes = false;
  bool json = false;
};

// Whether the person at the terminal agrees; without one, --yes must say so.
bool agreed(const std::string& question) {
  if (!input_is_terminal() || !error_is_terminal()) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "--yes removes without asking",
                   "remove: found no terminal to ask on, expected --yes");
  }
  print_error(question + " [y/N]");
  std::string answer;
  return read_line(answer) && (answer == "y" || answer == "yes");
}

int remove(const Options& options) {
  const store::Store place = store::user_store();
  const store::Removal removal =
      store::plan_removal(place, options.name, options.all);
  const std::string what = fmt::format(
      "{} ({})", fmt::join(removal.names, ", "), format_size(removal.bytes));
  if (!options.yes && !agreed("remove " + what + "?")) {
    print_error("nothing was removed");
    return kFailed;
  }
  store::remove(place, removal);
  if (options.json) {
    print_json({{"removed", removal.names}, {"freed_bytes", removal.bytes}});
  } else {
    print("removed " + what + "\n");
  }
  return kDone;
}

}  // namespace

void add_remove(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      add_command(app,
                  session,
                  "remove",
                  "Removes a version or a downloaded model from the store",
                  "nibble remove fable-moe-int4 --yes",
                  [options](Session&) { return remove(*options); });
  command
      .add_option("name",
                  options->name,
                  "Of a version, or of a downloaded model (OWNER/NAME)")
      ->required()
      ->type_name("NAME");
  command.add_flag("--all",
                   options->all,
                   "The model's download and every version made from it");
  command.add_flag("--yes", options->yes, "Do not ask");
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
