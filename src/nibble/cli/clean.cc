#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/units.h"
#include "nibble/cli/exit_code.h"
#include "nibble/cli/output.h"
#include "nibble/cli/session.h"
#include "nibble/cli/table.h"
#include "nibble/quant/pipeline/partial/partial.h"

namespace nibble::cli {
namespace {

using quant::Partial;

struct Options {
  std::vector<std::string> directories = {"."};
  bool yes = false;
  bool json = false;
};

// What was removed, and what a running process holds.
struct Cleaned {
  std::vector<Partial> removed;
  std::vector<Partial> in_use;
};

std::vector<Partial> found_in(const std::vector<std::string>& directories) {
  std::vector<Partial> found;
  for (const std::string& directory : directories) {
    for (Partial& partial : quant::find_partials(directory)) {
      found.push_back(std::move(partial));
    }
  }
  return found;
}

std::string list_text(const std::vector<Partial>& partials) {
  Table table({"partial result", "size", "made from"});
  for (const Partial& partial : partials) {
    table.add(
        {partial.path.string(),
         format_size(partial.bytes),
         printable(partial.source_path) + (partial.in_use ? " (in use)" : "")});
  }
  return table.text();
}

// Nothing is removed without a word of the user.
bool confirmed(const Options& options, const std::vector<Partial>& found) {
  if (options.yes) {
    return true;
  }
  if (options.json || !input_is_terminal() || !output_is_terminal()) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "nibble clean --yes removes them",
                   "clean: found {} partial results and no terminal to ask at, "
                   "expected --yes",
                   found.size());
  }
  print(list_text(found) + "Remove them? [y/N] ");
  flush_output();
  std::string answer;
  return read_line(answer) && (answer == "y" || answer == "yes");
}

nlohmann::json to_json(const Cleaned& cleaned) {
  nlohmann::json document{{"removed", nlohmann::json::array()},
                          {"in_use", nlohmann::json::array()},
                          {"freed_bytes", 0}};
  std::uint64_t freed = 0;
  for (const Partial& partial : cleaned.removed) {
    document["removed"].push_back(
        {{"path", partial.path.string()}, {"bytes", partial.bytes}});
    freed += partial.bytes;
  }
  for (const Partial& partial : cleaned.in_use) {
    document["in_use"].push_back(partial.path.string());
  }
  document["freed_bytes"] = freed;
  return document;
}

std::string to_text(const Cleaned& cleaned) {
  std::uint64_t freed = 0;
  for (const Partial& partial : cleaned.removed) {
    freed += partial.bytes;
  }
  std::string text;
  for (const Partial& partial : cleaned.removed) {
    text += fmt::format(
        "{}: {}\n", partial.path.string(), format_size(partial.bytes));
  }
  for (const Partial& partial : cleaned.in_use) {
    text += fmt::format("{}: a running process works on it: kept\n",
                        partial.path.string());
  }
  return text + fmt::format("removed {} partial results, {} freed\n",
                            cleaned.removed.size(),
                            format_size(freed));
}

int clean(const Options& options) {
  const std::vector<Partial> found = found_in(options.directories);
  if (found.empty() && !options.json) {
    print("no partial results\n");
    return kDone;
  }
  Cleaned cleaned;
  if (!found.empty() && !confirmed(options, found)) {
    print("nothing was removed\n");
    return kDone;
  }
  for (const Partial& partial : found) {
    (quant::remove_partial(partial.path) ? cleaned.removed : cleaned.in_use)
        .push_back(partial);
  }
  if (options.json) {
    print_json(to_json(cleaned));
  } else {
    print(to_text(cleaned));
  }
  return kDone;
}

}  // namespace

void add_clean(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      add_command(app,
                  session,
                  "clean",
                  "Removes partial results of runs that will not go on",
                  "nibble clean --yes models",
                  [options](Session&) { return clean(*options); });
  command
      .add_option("directories",
                  options->directories,
                  "Where to look for *.partial, or one of them (here)")
      ->type_name("DIR");
  command.add_flag("--yes", options->yes, "Do not ask");
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
