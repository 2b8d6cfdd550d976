#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/units.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/cli/screen/table.h"
#include "nibble/store/catalogue.h"

namespace nibble::cli {
namespace {

using nlohmann::json;

struct Options {
  bool json = false;
};

json or_null(const std::optional<double>& value) {
  return value ? json(*value) : json();
}

json to_json(const store::Store& place,
             const std::vector<store::SourceModel>& models,
             const std::vector<store::Version>& versions) {
  json rows = json::array();
  for (const store::SourceModel& model : models) {
    rows.push_back({{"kind", "source"},
                    {"name", model.name},
                    {"path", model.path.string()},
                    {"source", json()},
                    {"recipe", json()},
                    {"scheme", model.scheme},
                    {"bits_per_weight", or_null(model.bits_per_weight)},
                    {"bytes", model.bytes},
                    {"created", model.created},
                    {"perplexity", json()},
                    {"kl", json()}});
  }
  for (const store::Version& version : versions) {
    rows.push_back({{"kind", "version"},
                    {"name", version.name},
                    {"path", version.path.string()},
                    {"source", store::shown_source(place, version.source)},
                    {"recipe", version.recipe},
                    {"scheme", version.scheme},
                    {"bits_per_weight", version.bits_per_weight},
                    {"bytes", version.bytes},
                    {"created", version.created},
                    {"perplexity", or_null(version.perplexity)},
                    {"kl", or_null(version.kl)}});
  }
  return {{"store", place.root.string()}, {"models", rows}};
}

std::string number(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string date(const std::string& created) {
  return created.substr(0, created.find('T'));
}

// Sources, and under each its versions.
std::string to_text(const store::Store& place,
                    const std::vector<store::SourceModel>& models,
                    const std::vector<store::Version>& versions) {
  if (models.empty() && versions.empty()) {
    return fmt::format(
        "nothing yet in {}\nnibble pull OWNER/NAME downloads a model; "
        "nibble quantize MODEL --recipe int4 makes a version\n",
        place.root.string());
  }
  std::map<std::string, const store::SourceModel*> sources;
  for (const store::SourceModel& model : models) {
    sources[model.name] = &model;
  }
  std::map<std::string, std::vector<const store::Version*>> made;
  for (const store::Version& version : versions) {
    const std::string source = store::shown_source(place, version.source);
    made[source].push_back(&version);
    sources.try_emplace(source, nullptr);
  }
  Table table(
      {"model", "scheme", "bits/w", "size", "date", "perplexity", "KL"});
  for (const auto& [name, model] : sources) {
    if (model != nullptr) {
      table.add({name,
                 model->scheme.empty() ? "-" : model->scheme,
                 number(model->bits_per_weight, 3),
                 format_size(model->bytes),
                 date(model->created),
                 "-",
                 "-"});
    } else {
      // Outside the store: it says where, not what.
      table.add({name, "-", "-", "-", "-", "-", "-"});
    }
    for (const store::Version* version : made[name]) {
      table.add({"  " + version->name,
                 version->scheme,
                 number(version->bits_per_weight, 3),
                 format_size(version->bytes),
                 date(version->created),
                 number(version->perplexity, 3),
                 number(version->kl, 5)});
    }
  }
  return table.text();
}

int list(const Options& options) {
  const store::Store place = store::user_store();
  const std::vector<store::SourceModel> models = store::models(place);
  const std::vector<store::Version> versions = store::versions(place);
  if (options.json) {
    print_json(to_json(place, models, versions));
  } else {
    print(to_text(place, models, versions));
  }
  return kDone;
}

}  // namespace

void add_list(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      add_command(app,
                  session,
                  "list",
                  "Lists the store: models, and under each what was made of it",
                  "nibble list --json",
                  [options](Session&) { return list(*options); });
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
