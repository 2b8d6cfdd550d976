#include "nibble/quant/pipeline/quantize.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/units.h"
#include "nibble/cli/common/interrupt.h"
#include "nibble/cli/common/ranks.h"
#include "nibble/cli/common/store_version.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/plan_text.h"
#include "nibble/cli/screen/progress.h"
#include "nibble/cli/screen/session.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/load/native/native_form.h"
#include "nibble/quant/engines/assess.h"
#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/quant/pipeline/plan/engine_facts.h"
#include "nibble/quant/pipeline/plan/native_recipe.h"
#include "nibble/quant/planning/forecast.h"
#include "nibble/store/resolve.h"

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
  // Of the layouts meta and gpt-fast.
  std::string scheme;
  std::int64_t shards = 0;
  std::int64_t group = 0;
  std::int64_t inner_k_tiles = 0;
  std::string int4_layout;
};

bool is_native(const Options& options) {
  return options.layout == "meta" || options.layout == "gpt-fast";
}

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
  if (options.layout != "hf" && !is_native(options)) {
    refuse("--layout",
           options.layout,
           "hf, meta or gpt-fast",
           "other layouts cannot be written by this version");
  }
  if (options.recipe.empty() == options.scheme.empty()) {
    refuse("--recipe",
           options.recipe.empty() ? "none" : "--scheme beside it",
           "one of --recipe and --scheme",
           "nibble quantize SRC --recipe int4 -o OUT");
  }
  if (options.shards != 0 && options.layout != "meta") {
    refuse("--shards",
           std::to_string(options.shards),
           "no such option with the layout " + options.layout,
           "--shard-size limits the size of a file");
  }
  if (!options.scheme.empty() && !is_native(options)) {
    refuse("--scheme",
           options.scheme,
           "no such option with the layout hf",
           "a recipe says which scheme a weight gets: --recipe");
  }
  if (options.layout != "gpt-fast" &&
      (options.group != 0 || options.inner_k_tiles != 0 ||
       !options.int4_layout.empty())) {
    refuse("--group, --inner-k-tiles, --int4-layout",
           "one of them with the layout " + options.layout,
           "the layout gpt-fast",
           "a recipe says which group a weight gets: --recipe");
  }
  if (options.inner_k_tiles != 0 && !options.int4_layout.empty()) {
    refuse("--inner-k-tiles",
           "--int4-layout beside it",
           "one of them",
           "bytes and CPU orders have no tiles");
  }
  if (!options.calibration.empty()) {
    refuse("--calibration",
           options.calibration,
           "no calibration",
           "the algorithms of this version need none");
  }
  if (options.output.empty() && is_native(options) && !options.dry_run) {
    refuse("-o",
           "nothing",
           "a directory for the layout " + options.layout,
           "the store holds results of the layout hf");
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

// The report that a version's receipt tells.
quant::QuantizeReport report_of(const store::MadeVersion& version) {
  const nlohmann::json receipt = quant::read_receipt(version.path);
  quant::QuantizeReport report;
  report.output = version.path;
  report.source_bytes = receipt.at("source").at("bytes").get<std::uint64_t>();
  report.output_bytes = receipt.at("output_bytes").get<std::uint64_t>();
  report.bits_per_weight = receipt.at("bits_per_weight").get<double>();
  report.seconds = receipt.at("seconds").get<double>();
  report.peak_rss_bytes = receipt.at("peak_rss_bytes").get<std::uint64_t>();
  report.resumed_parts = version.resumed_parts;
  report.notes = version.notes;
  return report;
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

// The source and the recipe of a job.
struct Input {
  load::CheckpointDirectory source;
  quant::Recipe recipe;
};

Input open_input(const Options& options) {
  load::CheckpointDirectory source =
      load::open_checkpoint(store::resolve_model(options.source));
  if (!is_native(options)) {
    return {std::move(source), quant::load_recipe(options.recipe)};
  }
  const load::NativeLayout layout = options.layout == "meta"
                                        ? load::NativeLayout::kMeta
                                        : load::NativeLayout::kGptFast;
  quant::Recipe recipe = quant::native_recipe(
      layout,
      options.scheme.empty() ? options.recipe : options.scheme,
      options.group,
      *source.config);
  const std::int64_t ranks = options.shards != 0
                                 ? options.shards
                                 : load::default_ranks(source, layout);
  return {load::as_native(std::move(source), layout, ranks), std::move(recipe)};
}

std::string format_name(const Options& options) {
  if (options.layout == "meta") {
    return "meta";
  }
  if (options.layout != "gpt-fast") {
    return quant::QuantizeOptions{}.format;
  }
  if (options.inner_k_tiles != 0) {
    return fmt::format("gpt_fast/tiles{}", options.inner_k_tiles);
  }
  return options.int4_layout.empty() ? "gpt_fast"
                                     : "gpt_fast/" + options.int4_layout;
}

quant::QuantizeOptions job_of(const Options& options, const Session& session) {
  quant::QuantizeOptions job;
  job.format = format_name(options);
  job.output = options.output;
  job.shard_bytes = options.shard_bytes;
  job.numerics = options.numerics == "exact" ? quant::Numerics::kExact
                                             : quant::Numerics::kReference;
  job.memory_bytes = session.memory_bytes;
  job.overwrite = options.overwrite;
  job.engines = options.engines;
  return job;
}

int quantize_into_store(const Options& options,
                        const Session& session,
                        const std::atomic<bool>& stop) {
  const store::MadeVersion version = store_version(
      options.source, options.recipe, session, stop, job_of(options, session));
  if (!version.made && !options.engines.empty()) {
    // It was perhaps made without asking them.
    const load::CheckpointDirectory source =
        load::open_checkpoint(store::resolve_model(options.source));
    static_cast<void>(quant::make_plan(
        source, quant::load_recipe(options.recipe), job_of(options, session)));
  }
  const quant::QuantizeReport report = report_of(version);
  if (options.json) {
    nlohmann::json document = to_json(report);
    document["name"] = version.name;
    document["made"] = version.made;
    print_json(document);
  } else if (version.made) {
    print(report_text(version.name, report));
  } else {
    print(fmt::format("{}: in the store already, {}, {:.3f} bits a weight\n",
                      version.name,
                      format_size(report.output_bytes),
                      report.bits_per_weight));
  }
  return kDone;
}

// Prints the plan and, when an engine refuses it, fails as the job would.
int print_plan(const Options& options, const Session& session) {
  const auto [source, recipe] = open_input(options);
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
  Input input;
  ranks.together([&] {
    if (options.output.empty()) {
      refuse("-o",
             "nothing",
             "a directory, as several processes make one result",
             "one process alone may write into the store");
    }
    input = open_input(options);
  });
  quant::QuantizeOptions job = job_of(options, session);
  job.ranks = &ranks;
  Progress progress(session);
  const bool speaks = ranks.rank() == 0;
  const quant::QuantizeReport report =
      quant::quantize(input.source,
                      input.recipe,
                      job,
                      speaks ? progress : null_progress(),
                      stop);
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
    const std::atomic<bool> never = false;  // nothing to leave in order
    return run_in_ranks(session, never, [&](Ranks& ranks) {
      return ranks.rank() == 0 ? print_plan(options, session) : kDone;
    });
  }
  set_interrupt_hint(kGoOnHint);
  const InterruptScope scope;
  return run_in_ranks(session, scope.flag(), [&](Ranks& ranks) {
    return options.output.empty() && ranks.count() == 1
               ? quantize_into_store(options, session, scope.flag())
               : quantize_in_ranks(options, session, scope.flag(), ranks);
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
  command
      .add_option("source",
                  options->source,
                  "Model directory, gpt-fast's model.pth, or a name")
      ->required()
      ->type_name("SRC");
  command
      .add_option("--recipe",
                  options->recipe,
                  "What becomes what: a built-in name, a file, or JSON")
      ->type_name("RECIPE");
  command
      .add_option("-o,--output",
                  options->output,
                  "Directory to write, new or empty (the store)")
      ->type_name("OUT");
  add_size(command,
           "--shard-size",
           options->shard_bytes,
           "Largest weight file (5GB)");
  command
      .add_option("--numerics",
                  options->numerics,
                  "exact: least error; reference: as the layout's own tool")
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
      .add_option("--layout",
                  options->layout,
                  "Layout of the result: hf, meta or "
                  "gpt-fast")
      ->capture_default_str()
      ->check(CLI::IsMember({"hf", "meta", "gpt-fast", "gguf", "gptq", "awq"}))
      ->type_name("LAYOUT");
  command.add_flag("--json", options->json, "One JSON document");
  command
      .add_option(
          "--scheme",
          options->scheme,
          "int4_mixed, fp8_mixed (meta); int8, int4, int4-g64 (gpt-fast)")
      ->type_name("NAME");
  command
      .add_option(
          "--shards",
          options->shards,
          "Files of the layout meta (as many as the source has, else 1)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}))
      ->type_name("N");
  command
      .add_option("--group", options->group, "Group of gpt-fast's int4 (32)")
      ->check(CLI::IsMember({32, 64, 128, 256}))
      ->type_name("G");
  command
      .add_option("--inner-k-tiles",
                  options->inner_k_tiles,
                  "Tiles of gpt-fast's int4 codes: 2, 4 or 8 (8)")
      ->check(CLI::IsMember({2, 4, 8}))
      ->type_name("T");
  command
      .add_option("--int4-layout",
                  options->int4_layout,
                  "Order of gpt-fast's int4 codes instead of tiles")
      ->check(CLI::IsMember({"bytes", "cpu-avx512", "cpu-avx2"}))
      ->type_name("ORDER");
  command.add_option("--calibration", options->calibration)->group("");
}

}  // namespace nibble::cli
