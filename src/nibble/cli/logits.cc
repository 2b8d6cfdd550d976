#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/cli/common/ids_file.h"
#include "nibble/cli/common/model_loader.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/container/safetensors/writer.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string model;
  std::string ids;
  std::string output;
  bool last = false;
  LoadOptions loading;
  bool json = false;
};

int logits(const Options& options) {
  const LoadedModel loaded = load_for_running(options.model, options.loading);
  const model::ModelConfig& config = loaded.model->config();
  const std::vector<std::int32_t> ids =
      read_ids(options.ids, config.vocabulary);
  NIBBLE_CHECK(!ids.empty(),
               kCorruptData,
               "{}: found no ids, expected at least one",
               options.ids);
  model::KvCache cache = loaded.model->make_cache();
  const Tensor result =
      loaded.model->forward(ids,
                            cache,
                            options.last ? model::Transformer::Logits::kLast
                                         : model::Transformer::Logits::kAll);
  const container::NamedTensor named{"logits", result.view()};
  container::write_safetensors(options.output, {&named, 1});
  if (options.json) {
    print_json({{"shape", {result.shape()[0], result.shape()[1]}}});
  } else {
    print(fmt::format(
        "{}: logits {}\n", options.output, to_string(result.shape())));
  }
  return kDone;
}

}  // namespace

void add_logits(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command = add_command(
      app,
      session,
      "logits",
      "Writes the float32 logits (tokens, vocabulary) of a list of token ids",
      "nibble logits models/fable-moe --ids ids.json -o logits.safetensors",
      [options](Session& now) {
        resolve_to_run(options->model, options->loading, now);
        return logits(*options);
      });
  command.add_option("model", options->model, kModelHelp)
      ->required()
      ->type_name("MODEL");
  command.add_option("--ids", options->ids, "File: a JSON array of token ids")
      ->required()
      ->type_name("FILE");
  command.add_option("-o,--output", options->output, "Safetensors file")
      ->required()
      ->type_name("FILE");
  command.add_flag("--last", options->last, "Only after the last token");
  add_load_options(command, options->loading);
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
