#include "nibble/quant/pipeline/inspect.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/units.h"
#include "nibble/cli/common/model_loader.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/cli/screen/table.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string path;
  bool layers = false;
  bool json = false;
};

std::string stored_as(const quant::InspectedLayer& layer) {
  return layer.scheme.empty() ? layer.dtype : layer.scheme;
}

std::string heading(const quant::InspectReport& report) {
  std::string text;
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<16}  {}\n", name, value);
  };
  if (!report.family.empty()) {
    line("family", fmt::format("{} ({})", report.family, report.architecture));
  }
  line("format", report.format);
  line("parameters", fmt::format("{}", report.parameters));
  if (report.active_parameters > 0 &&
      report.active_parameters != report.parameters) {
    line("active", fmt::format("{} a token", report.active_parameters));
  }
  line("size", format_size(report.bytes));
  line("bits a weight", fmt::format("{:.3f}", report.bits_per_weight));
  line("files", fmt::format("{}", report.files.size()));
  return text + "\n";
}

// Layers of one role that are stored alike, together.
std::string by_role(const quant::InspectReport& report) {
  struct Sum {
    std::size_t count = 0;
    std::uint64_t bytes = 0;
  };

  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const quant::InspectedLayer& layer : report.layers) {
    Sum& sum = sums[{layer.role, stored_as(layer)}];
    ++sum.count;
    sum.bytes += layer.bytes;
  }
  Table table({"role", "stored as", "tensors", "size"});
  for (const auto& [key, sum] : sums) {
    table.add({key.first,
               key.second,
               std::to_string(sum.count),
               format_size(sum.bytes)});
  }
  return table.text();
}

std::string by_layer(const quant::InspectReport& report) {
  Table table({"name", "shape", "stored as", "size"});
  for (const quant::InspectedLayer& layer : report.layers) {
    table.add({layer.name,
               to_string(layer.shape),
               stored_as(layer),
               format_size(layer.bytes)});
  }
  return table.text();
}

int inspect(const Options& options) {
  const quant::InspectReport report = quant::inspect(options.path);
  if (options.json) {
    print_json(quant::to_json(report));
  } else {
    print(heading(report) +
          (options.layers ? by_layer(report) : by_role(report)));
  }
  return kDone;
}

}  // namespace

void add_inspect(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      add_command(app,
                  session,
                  "inspect",
                  "Shows what a checkpoint holds; reads headers only",
                  "nibble inspect models/fable-moe --layers",
                  [options](Session&) {
                    resolve(options->path);
                    return inspect(*options);
                  });
  command
      .add_option("path",
                  options->path,
                  "Model directory, or a file: safetensors or gpt-fast's")
      ->required()
      ->type_name("MODEL|FILE");
  command.add_flag("--layers", options->layers, "Layer by layer");
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
