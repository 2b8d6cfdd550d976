#include "nibble/quant/pipeline/quantize.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/units.h"
#include "nibble/cli/exit_code.h"
#include "nibble/cli/interrupt.h"
#include "nibble/cli/output.h"
#include "nibble/cli/plan_text.h"
#include "nibble/cli/progress.h"
#include "nibble/cli/ranks.h"
#include "nibble/cli/session.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/quant/engines/assess.h"
#include "nibble/quant/pipeline/engine_facts.h"
#include "nibble/quant/pipeline/receipt.h"
#include "nibble/quant/planning/forecast.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string source;
  std::string recipe;
  std::string output;
  std::string layout = "hf";
  std::string numerics = "exact";
  std::vector<std::string> engines;
  std::uint64_t shard_bytes = quant::QuantizeOptions{}.shard_bytes;
  bool dry_run = false;
  bool overwrite = false;
  bool json = false;
  // Promised names that nothing answers yet: accepted to be refused clearly.
  std::string calibration;
  std::int64_t shards = 0;
};

[[noreturn]] void refuse(const std::string& option,
                         const std::string& found,
                         const std::string& expected,
                         const std::string& hint) {
  fail_with_hint(ErrorCode::kInvalidArgument,
                 hint,
                 "quantize: {}: found {}, expected {}",
                 option,
                 found,
                 expected);
}

void refuse_unsupported(const Options& options) {
  if (options.layout != "hf") {
    refuse("--layout",
           options.layout,
           "hf",
           "other layouts cannot be written by this version");
  }
  if (options.shards != 0) {
    refuse("--shards",
           std::to_string(options.shards),
           "no such option with the layout hf",
           "--shard-size limits the size of a file");
  }
  if (!options.calibration.empty()) {
    refuse("--calibration",
           options.calibration,
           "no calibration",
           "the algorithms of this version need none");
  }
  if (options.output.empty() && !options.dry_run) {
    refuse("-o",
           "nothing",
           "a directory",
           "nibble quantize SRC --recipe int4 -o OUT");
  }
}

std::string report_text(const std::string& output,
                        const quant::QuantizeReport& report) {
  std::string text = fmt::format(
      "{}: {} from {}, {:.3f} bits a weight, in {} with {} of memory\n",
      output,
      format_size(report.output_bytes),
      format_size(report.source_bytes),
      report.bits_per_weight,
      format_seconds(report.seconds),
      format_size(report.peak_rss_bytes));
  if (report.resumed_parts > 0) {
    text += fmt::format("continued an earlier run: {} parts were finished\n",
                        report.resumed_parts);
  }
  for (const std::string& note : report.notes) {
    text += "note: " + note + "\n";
  }
  return text;
}

nlohmann::json to_json(const quant::QuantizeReport& report) {
  return {{"path", report.output.string()},
          {"source_bytes", report.source_bytes},
          {"output_bytes", report.output_bytes},
          {"bits_per_weight", report.bits_per_weight},
          {"seconds", report.seconds},
          {"peak_rss_bytes", report.peak_rss_bytes},
          {"resumed_parts", report.resumed_parts},
          {"notes", report.notes},
          {"tensors", quant::read_receipt(report.output).at("tensors")}};
}

quant::QuantizeOptions job_of(const Options& options, const Session& session) {
  quant::QuantizeOptions job;
  job.output = options.output;
  job.shard_bytes = options.shard_bytes;
  job.numerics = options.numerics == "exact" ? quant::Numerics::kExact
                                             : quant::Numerics::kReference;
  job.memory_bytes = session.memory_bytes;
  job.overwrite = options.overwrite;
  job.engines = options.engines;
  return job;
}

// Prints the plan and, when an engine refuses it, fails as the job would.
int print_plan(const Options& options, const Session& session) {
  const load::CheckpointDirectory source =
      load::open_checkpoint(options.source);
  const quant::Recipe recipe = quant::load_recipe(options.recipe);
  quant::QuantizeOptions job = job_of(options, session);
  job.engines.clear();
  const quant::Plan plan = quant::make_plan(source, recipe, job);
  job.engines = options.engines;
  const quant::Forecast forecast = quant::forecast(plan, source, job);
  if (options.json) {
    nlohmann::json document = quant::to_json(plan, source);
    document.update(quant::to_json(forecast, plan));
    print_json(document);
  } else {
    print(plan_text(plan, source, forecast, session.verbose));
  }
  flush_output();
  quant::refuse_unless_accepted(options.engines,
                                quant::model_facts(plan, source));
  return kDone;
}

int quantize_in_ranks(const Options& options,
                      const Session& session,
                      const std::atomic<bool>& stop,
                      Ranks& ranks) {
  load::CheckpointDirectory source;
  quant::Recipe recipe;
  ranks.together([&] {
    source = load::open_checkpoint(options.source);
    recipe = quant::load_recipe(options.recipe);
  });
  quant::QuantizeOptions job = job_of(options, session);
  job.ranks = &ranks;
  Progress progress(session);
  const bool speaks = ranks.rank() == 0;
  const quant::QuantizeReport report = quant::quantize(
      source, recipe, job, speaks ? progress : null_progress(), stop);
  if (!speaks) {
    return kDone;
  }
  if (options.json) {
    print_json(to_json(report));
  } else {
    print(report_text(options.output, report));
  }
  return kDone;
}

int quantize(const Options& options, const Session& session) {
  refuse_unsupported(options);
  for (const std::string& engine : options.engines) {
    (void)quant::engine_named(engine);
  }
  if (options.dry_run) {
    return print_plan(options, session);
  }
  set_interrupt_hint(
      "the same command goes on from here; nibble clean removes what is there");
  const InterruptScope scope;
  return run_in_ranks(session, scope.flag(), [&](Ranks& ranks) {
    return quantize_in_ranks(options, session, scope.flag(), ranks);
  });
}

}  // namespace

void add_quantize(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command = add_command(
      app,
      session,
      "quantize",
      "Writes a quantized copy of a checkpoint",
      "nibble quantize models/fable-moe --recipe int4 -o fable-moe-int4",
      [options](Session& now) { return quantize(*options, now); });
  command.add_option("source", options->source, "Hugging Face directory")
      ->required()
      ->type_name("SRC");
  command
      .add_option("--recipe",
                  options->recipe,
                  "What becomes what: a built-in name, a file, or JSON")
      ->required()
      ->type_name("RECIPE");
  command
      .add_option(
          "-o,--output", options->output, "Directory to write: new or empty")
      ->type_name("OUT");
  add_size(command,
           "--shard-size",
           options->shard_bytes,
           "Largest weight file (5GB)");
  command
      .add_option("--numerics",
                  options->numerics,
                  "exact: least error; reference: as llm-compressor rounds")
      ->capture_default_str()
      ->check(CLI::IsMember({"exact", "reference"}))
      ->type_name("MODE");
  command
      .add_option("--for",
                  options->engines,
                  "Refuse what these engines will not load (nibble engines)")
      ->delimiter(',')
      ->type_name("ENGINE");
  command.add_flag("--dry-run",
                   options->dry_run,
                   "Print the plan and what it takes; write nothing");
  command.add_flag("--overwrite",
                   options->overwrite,
                   "Replace the checkpoint that is at OUT");
  command
      .add_option(
          "--layout", options->layout, "Layout of the result; so far hf alone")
      ->capture_default_str()
      ->check(CLI::IsMember({"hf", "meta", "gpt-fast", "gguf", "gptq", "awq"}))
      ->type_name("LAYOUT");
  command.add_flag("--json", options->json, "One JSON document");
  command.add_option("--shards", options->shards)->group("");
  command.add_option("--calibration", options->calibration)->group("");
}

}  // namespace nibble::cli
