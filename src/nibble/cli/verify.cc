#include "nibble/quant/pipeline/check/verify.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/cli/common/model_loader.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/progress.h"
#include "nibble/cli/screen/session.h"
#include "nibble/cli/screen/table.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string directory;
  std::optional<std::string> source;
  bool json = false;
};

nlohmann::json to_json(const quant::VerifyReport& report) {
  nlohmann::json layers = nlohmann::json::array();
  for (const quant::LayerError& layer : report.layers) {
    layers.push_back({{"name", layer.name},
                      {"relative_mse", layer.figures.relative_mse},
                      {"cosine", layer.figures.cosine},
                      {"max_abs", layer.figures.max_abs}});
  }
  return {{"ok", report.ok},
          {"problems", report.problems},
          {"notes", report.notes},
          {"layers", layers}};
}

// The layers that lost most, and the verdict.
std::string to_text(const quant::VerifyReport& report) {
  std::vector<quant::LayerError> worst = report.layers;
  std::stable_sort(
      worst.begin(), worst.end(), [](const auto& a, const auto& b) {
        return a.figures.relative_mse > b.figures.relative_mse;
      });
  constexpr std::size_t kShown = 5;
  worst.resize(std::min(worst.size(), kShown));
  std::string text;
  if (!worst.empty()) {
    Table table({"largest errors", "relative mse", "cosine", "max abs"});
    for (const quant::LayerError& layer : worst) {
      table.add({layer.name,
                 fmt::format("{:.3e}", layer.figures.relative_mse),
                 fmt::format("{:.6f}", layer.figures.cosine),
                 fmt::format("{:.3e}", layer.figures.max_abs)});
    }
    text += table.text() + "\n";
  }
  for (const std::string& note : report.notes) {
    text += "note: " + note + "\n";
  }
  for (const std::string& problem : report.problems) {
    text += "problem: " + problem + "\n";
  }
  text += report.ok
              ? fmt::format("ok: {} quantized layers\n", report.layers.size())
              : fmt::format("not ok: {} problems\n", report.problems.size());
  return text;
}

int verify(const Options& options, const Session& session) {
  std::optional<std::filesystem::path> source;
  if (options.source) {
    source = *options.source;
  }
  quant::VerifyReport report;
  {
    Progress progress(session);
    report = quant::verify(options.directory, source, progress);
  }
  if (options.json) {
    print_json(to_json(report));
  } else {
    print(to_text(report));
  }
  return report.ok ? kDone : kCheckFailed;
}

}  // namespace

void add_verify(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      add_command(app,
                  session,
                  "verify",
                  "Checks a written directory against its receipt",
                  "nibble verify fable-moe-int4 --source models/fable-moe",
                  [options](Session& now) {
                    resolve(options->directory);
                    if (options->source) {
                      resolve(*options->source);
                    }
                    return verify(*options, now);
                  });
  command.add_option("directory", options->directory, "Quantized directory")
      ->required()
      ->type_name("DIR|NAME");
  command
      .add_option("--source",
                  options->source,
                  "What it was made from: errors are computed anew")
      ->type_name("DIR");
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
