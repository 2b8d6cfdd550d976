#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/files/file.h"
#include "nibble/base/memory_budget.h"
#include "nibble/base/units.h"
#include "nibble/cli/common/ids_file.h"
#include "nibble/cli/common/model_loader.h"
#include "nibble/cli/common/prompt.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/progress.h"
#include "nibble/cli/screen/session.h"
#include "nibble/store/measurements.h"
#include "nibble/text/evaluate.h"
#include "nibble/text/tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string model;
  std::optional<std::string> text;
  std::optional<std::string> ids;
  std::string reference;
  text::EvaluateOptions evaluate;
  LoadOptions loading;
  bool json = false;
};

nlohmann::json to_json(const text::EvaluateResult& result) {
  nlohmann::json json = {{"perplexity", result.perplexity},
                         {"nll", result.nll},
                         {"windows", result.windows},
                         {"tokens", result.tokens},
                         {"tokens_per_second", result.tokens_per_second},
                         {"peak_rss_bytes", peak_resident_bytes()}};
  if (result.divergence) {
    json["kl_mean"] = result.divergence->mean;
    json["kl_median"] = result.divergence->median;
    json["kl_p99"] = result.divergence->p99;
    json["top1"] = result.divergence->top1;
  }
  return json;
}

std::string to_text(const text::EvaluateResult& result) {
  std::string text = fmt::format(
      "perplexity      {:.4f}\n"
      "nll             {:.5f} nats a token\n"
      "windows         {} ({} tokens)\n"
      "speed           {:.0f} tokens/s\n"
      "peak memory     {}\n",
      result.perplexity,
      result.nll,
      result.windows,
      result.tokens,
      result.tokens_per_second,
      format_size(peak_resident_bytes()));
  if (result.divergence) {
    text += fmt::format(
        "KL mean         {:.6f} nats\n"
        "KL median       {:.6f}\n"
        "KL p99          {:.6f}\n"
        "same top token  {:.2f} %\n",
        result.divergence->mean,
        result.divergence->median,
        result.divergence->p99,
        100 * result.divergence->top1);
  }
  return text;
}

int eval(Options& options, const Session& session) {
  require_one("eval",
              {{"--text", options.text.has_value()},
               {"--ids", options.ids.has_value()}});
  resolve_to_run(options.model, options.loading, session);
  if (!options.reference.empty()) {
    resolve(options.reference);
  }
  const LoadedModel loaded = load_for_running(options.model, options.loading);
  const std::vector<std::int32_t> ids =
      !options.ids ? encode_beginning(
                         text::load_tokenizer(model_directory(options.model)),
                         model_directory(options.model),
                         loaded.model->config(),
                         read_text_file(*options.text))
                   : read_ids(*options.ids, loaded.model->config().vocabulary);
  std::optional<LoadedModel> reference;
  if (!options.reference.empty()) {
    reference = load_for_running(options.reference);
  }
  text::EvaluateResult result;
  {
    Progress progress(session, "windows");
    result = text::evaluate(
        *loaded.model,
        ids,
        options.evaluate,
        reference ? reference->model.get() : nullptr,
        [&](std::int64_t done, std::int64_t total) {
          if (done == 1) {
            progress.begin("evaluating", static_cast<std::uint64_t>(total));
          }
          progress.advance(1);
        });
  }
  if (const auto place = store::find_user_store()) {
    store::record_measurement(
        *place,
        options.model,
        {.perplexity = result.perplexity,
         .kl = result.divergence ? std::optional(result.divergence->mean)
                                 : std::nullopt,
         .text = options.text ? *options.text : *options.ids,
         .reference = options.reference,
         .window = options.evaluate.window,
         .windows = result.windows});
  }
  if (options.json) {
    print_json(to_json(result));
  } else {
    print(to_text(result));
  }
  return kDone;
}

}  // namespace

void add_eval(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command = add_command(
      app,
      session,
      "eval",
      "Measures perplexity, and the distance from a reference model",
      "nibble eval fable-moe-int4 --text models/held.txt --limit 32"
      " --reference models/fable-moe",
      [options](Session& now) { return eval(*options, now); });
  command.add_option("model", options->model, kModelHelp)
      ->required()
      ->type_name("MODEL");
  command.add_option("--text", options->text, "Text to measure on")
      ->type_name("FILE");
  command
      .add_option("--ids", options->ids, "Instead: a JSON array of token ids")
      ->type_name("FILE");
  command
      .add_option("--window",
                  options->evaluate.window,
                  "Tokens that are read without a past; a rest is dropped")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 40))
      ->type_name("N");
  command
      .add_option("--limit", options->evaluate.limit, "Windows at most (all)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->type_name("N");
  command
      .add_option("--reference",
                  options->reference,
                  "Model whose predictions are the standard")
      ->type_name("MODEL");
  add_load_options(command, options->loading);
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
