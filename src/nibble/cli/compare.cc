#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/memory_budget.h"
#include "nibble/cli/common/child.h"
#include "nibble/cli/common/interrupt.h"
#include "nibble/cli/common/model_loader.h"
#include "nibble/cli/common/prompt.h"
#include "nibble/cli/common/store_version.h"
#include "nibble/cli/screen/compare_rows.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/quant/pipeline/inspect.h"
#include "nibble/quant/pipeline/quantize.h"
#include "nibble/store/measurements.h"
#include "nibble/text/evaluate.h"
#include "nibble/text/generate.h"
#include "nibble/text/tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Options {
  std::string model;
  std::vector<std::string> recipes;
  std::string text;
  fs::path keep;
  std::string html;
  text::EvaluateOptions evaluate;
  std::optional<double> most_kl;
  bool json = false;
};

// DIR/fable-moe-int4
fs::path kept_version(const Options& options, const std::string& recipe) {
  const fs::path source = fs::weakly_canonical(fs::absolute(options.model));
  return options.keep / (source.filename().string() + "-" + recipe);
}

// Makes a version at the user's directory.
json make_version(const Options& options,
                  const Session& session,
                  const quant::Recipe& recipe,
                  const fs::path& output) {
  const load::CheckpointDirectory source = load::open_checkpoint(options.model);
  quant::QuantizeOptions job;
  job.output = output;
  job.memory_bytes = session.memory_bytes;
  job.overwrite = true;
  const std::atomic<bool> stop{false};
  const quant::QuantizeReport report =
      quant::quantize(source, recipe, job, null_progress(), stop);
  return {{"path", output.string()},
          {"seconds", report.seconds},
          {"quantize_peak_rss_bytes", report.peak_rss_bytes}};
}

// Finds a version in the store, or makes it there.
json find_version(const Options& options,
                  const Session& session,
                  const std::string& recipe) {
  const std::atomic<bool> stop{false};
  const store::MadeVersion version =
      store_version(options.model, recipe, session, stop);
  const json receipt = quant::read_receipt(version.path);
  json result = {{"path", version.path.string()}};
  if (version.made) {
    result["seconds"] = receipt.at("seconds");
    result["quantize_peak_rss_bytes"] = receipt.at("peak_rss_bytes");
  }
  return result;
}

// What was found stands beside the version in the store, for `list`.
void keep_measurement(const Options& options, const json& row) {
  const auto place = store::find_user_store();
  if (!place || !row.contains("kl_mean")) {
    return;
  }
  store::record_measurement(*place,
                            row.at("path").get<std::string>(),
                            {.perplexity = row.at("perplexity"),
                             .kl = row.at("kl_mean").get<double>(),
                             .text = options.text,
                             .reference = options.model,
                             .window = options.evaluate.window,
                             .windows = row.at("windows")});
}

// Speed of a prompt and of its continuation, and the memory that both take.
json run_version(const Options& options, const fs::path& version) {
  // Long enough for a steady rate, short enough for a small model's context.
  constexpr std::size_t kPromptTokens = 256;
  constexpr std::int64_t kNewTokens = 64;
  const text::Tokenizer tokenizer = text::load_tokenizer(version);
  const LoadedModel loaded = load_for_running(version);
  std::vector<std::int32_t> prompt = encode_beginning(
      tokenizer, version, loaded.model->config(), read_text_file(options.text));
  prompt.resize(std::min(prompt.size(), kPromptTokens));
  text::GenerateOptions generate;
  generate.max_tokens = kNewTokens;
  generate.ignore_eos = true;
  // The first run touches every weight; the second is timed.
  json figures;
  for (int run = 0; run < 2; ++run) {
    const text::GenerateResult result = text::generate(
        *loaded.model, tokenizer, prompt, generate, [](std::string_view) {});
    figures = {{"prompt_tokens_per_second",
                static_cast<double>(result.prompt_tokens) /
                    std::max(result.prompt_seconds, 1e-9)},
               {"generated_tokens_per_second",
                static_cast<double>(result.generated_tokens) /
                    std::max(result.generated_seconds, 1e-9)}};
  }
  figures["peak_rss_bytes"] = peak_resident_bytes();
  return figures;
}

// Perplexity, and the distance from the source unless this is the source.
json score_version(const Options& options,
                   const fs::path& version,
                   bool is_source) {
  const LoadedModel loaded = load_for_running(version);
  std::optional<LoadedModel> reference;
  if (!is_source) {
    reference = load_for_running(options.model);
  }
  const std::vector<std::int32_t> ids =
      text::load_tokenizer(model_directory(options.model))
          .encode(read_text_file(options.text));
  const text::EvaluateResult result =
      text::evaluate(*loaded.model,
                     ids,
                     options.evaluate,
                     reference ? reference->model.get() : nullptr,
                     [](std::int64_t, std::int64_t) {});
  json scores = {{"perplexity", result.perplexity},
                 {"nll", result.nll},
                 {"windows", result.windows}};
  if (result.divergence) {
    scores["kl_mean"] = result.divergence->mean;
    scores["kl_median"] = result.divergence->median;
    scores["kl_p99"] = result.divergence->p99;
    scores["top1"] = result.divergence->top1;
  }
  return scores;
}

// Each step in a process of its own, so that its peak memory is its own.
json measure(const Options& options, const fs::path& version, bool is_source) {
  json row = run_in_child([&] { return run_version(options, version); });
  row.update(
      run_in_child([&] { return score_version(options, version, is_source); }));
  const quant::InspectReport inspected = quant::inspect(version);
  row.update(scheme_columns(version));
  row["format"] = inspected.format;
  row["bytes"] = inspected.bytes;
  row["bits_per_weight"] = inspected.bits_per_weight;
  return row;
}

// Of the rows the first whose distance from the source is too large.
const json* over_limit(const json& rows, const std::optional<double>& most) {
  for (const json& row : rows) {
    if (most && row.contains("kl_mean") &&
        row.at("kl_mean").get<double>() > *most) {
      return &row;
    }
  }
  return nullptr;
}

int compare(const Options& options, const Session& session) {
  const auto note = [&session](const std::string& text) {
    if (!session.quiet) {
      print_error(text);
    }
  };
  // Refuses what can be refused before the first measurement.
  NIBBLE_CHECK(!fs::is_directory(options.html),
               kInvalidArgument,
               "output {}: found a directory, expected the name of a file",
               options.html);
  std::vector<quant::Recipe> recipes;
  for (const std::string& name : options.recipes) {
    recipes.push_back(quant::load_recipe(name));
  }
  const std::string written = quant::inspect(options.model).format;
  set_interrupt_hint("the same command finds the versions made so far");

  json rows = json::array();
  note(fmt::format("measuring {} ...", options.model));
  rows.push_back(measure(options, options.model, /*is_source=*/true));
  rows.back()["recipe"] = "source";
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    const std::string name =
        recipes[i].name.empty() ? std::to_string(i + 1) : recipes[i].name;
    note(fmt::format("{} ...", name));
    // A process of its own, as its peak of memory is stated.
    const json made = run_in_child([&] {
      return options.keep.empty()
                 ? find_version(options, session, options.recipes[i])
                 : make_version(options,
                                session,
                                recipes[i],
                                kept_version(options, name));
    });
    json row = measure(
        options, made.at("path").get<std::string>(), /*is_source=*/false);
    row.update(made);
    row["recipe"] = name;
    keep_measurement(options, row);
    rows.push_back(row);
  }
  if (options.json) {
    print_json({{"rows", rows}});
  } else {
    print(compare_text(rows));
  }
  if (!options.html.empty()) {
    write_file_atomically(
        options.html,
        compare_page(fs::weakly_canonical(fs::absolute(options.model))
                         .filename()
                         .string(),
                     options.text,
                     rows));
    note(fmt::format("{} written", options.html));
  }
  if (const json* row = over_limit(rows, options.most_kl)) {
    flush_output();
    fail(ErrorCode::kCheckFailed,
         "compare: {}: found a mean KL of {:.6f}, expected at most {:.6f}",
         row->at("recipe").get<std::string>(),
         row->at("kl_mean").get<double>(),
         *options.most_kl);
  }
  return kDone;
}

}  // namespace

void add_compare(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  options->evaluate.limit = 32;
  CLI::App& command = add_command(
      app,
      session,
      "compare",
      "Makes quantized versions of a model and measures them side by side",
      "nibble compare models/fable-moe int4 int8 fp8 --text models/held.txt",
      [options](Session& now) {
        resolve(options->model);
        return compare(*options, now);
      });
  command.add_option("model", options->model, "Model directory")
      ->required()
      ->type_name("MODEL");
  command
      .add_option("recipes",
                  options->recipes,
                  "Built-in names, files or JSON (the source alone)")
      ->type_name("RECIPE");
  command.add_option("--text", options->text, "Text to measure on")
      ->required()
      ->type_name("FILE");
  command
      .add_option("--limit", options->evaluate.limit, "Windows of it at most")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->type_name("N");
  command.add_option("--window", options->evaluate.window, "Tokens a window")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 40))
      ->type_name("N");
  command
      .add_option("--keep",
                  options->keep,
                  "Make the versions here, as MODEL-RECIPE (in the store)")
      ->type_name("DIR");
  command
      .add_option("--max-kl",
                  options->most_kl,
                  "Exit code 4 when a version's mean KL is above this")
      ->type_name("X");
  command
      .add_option("--html",
                  options->html,
                  "Page with size against quality and the table")
      ->type_name("FILE");
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
