#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/units.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/cli/screen/table.h"
#include "nibble/quant/pipeline/partial/partial.h"
#include "nibble/store/leftovers.h"

namespace nibble::cli {
namespace {

using quant::Partial;

struct Options {
  std::vector<std::string> directories;  // none: here, and the store
  bool yes = false;
  bool json = false;
};

// What was removed, and what a running process holds.
struct Cleaned {
  std::vector<Partial> removed;
  std::vector<Partial> in_use;
};

// What was found: partial results of quantizing, and what else the store
// holds that nobody finished.
struct Found {
  std::vector<Partial> partials;
  std::vector<store::Leftover> leftovers;

  [[nodiscard]] std::size_t count() const {
    return partials.size() + leftovers.size();
  }
};

Found find_all(const std::vector<std::string>& given,
               const std::optional<store::Store>& place) {
  Found found;
  std::vector<std::string> directories = given;
  if (given.empty()) {
    directories.emplace_back(".");
    if (place && std::filesystem::is_directory(place->versions())) {
      directories.push_back(place->versions().string());
    }
    if (place) {
      found.leftovers = store::find_leftovers(*place);
    }
  }
  for (const std::string& directory : directories) {
    for (Partial& partial : quant::find_partials(directory)) {
      found.partials.push_back(std::move(partial));
    }
  }
  return found;
}

// A leftover of the store, told like a partial result.
Partial as_partial(const store::Leftover& leftover) {
  Partial partial;
  partial.path = leftover.path;
  partial.bytes = leftover.bytes;
  partial.source_path = leftover.what;
  partial.in_use = leftover.in_use;
  return partial;
}

std::string list_text(const Found& found) {
  std::vector<Partial> partials = found.partials;
  for (const store::Leftover& leftover : found.leftovers) {
    partials.push_back(as_partial(leftover));
  }
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
bool confirmed(const Options& options, const Found& found) {
  if (options.yes) {
    return true;
  }
  if (options.json || !input_is_terminal() || !output_is_terminal()) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "nibble clean --yes removes them",
                   "clean: found {} partial results and no terminal to ask at, "
                   "expected --yes",
                   found.count());
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
  const std::optional<store::Store> place = store::find_user_store();
  const Found found = find_all(options.directories, place);
  if (found.count() == 0 && !options.json) {
    print("no partial results\n");
    return kDone;
  }
  Cleaned cleaned;
  if (found.count() > 0 && !confirmed(options, found)) {
    print("nothing was removed\n");
    return kDone;
  }
  for (const Partial& partial : found.partials) {
    (quant::remove_partial(partial.path) ? cleaned.removed : cleaned.in_use)
        .push_back(partial);
  }
  for (const store::Leftover& leftover : found.leftovers) {
    (store::remove_leftover(*place, leftover) ? cleaned.removed
                                              : cleaned.in_use)
        .push_back(as_partial(leftover));
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
                  "Where to look for *.partial, or one of them (here and the"
                  " store)")
      ->type_name("DIR");
  command.add_flag("--yes", options->yes, "Do not ask");
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
