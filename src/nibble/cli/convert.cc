#include "nibble/quant/pipeline/convert.h"

#include <memory>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/units.h"
#include "nibble/cli/common/interrupt.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/progress.h"
#include "nibble/cli/screen/session.h"
#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/store/resolve.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string source;
  std::string output;
  std::string to;
  std::string dtype;
  std::string requantize;
  std::int64_t shards = 0;
  std::uint64_t shard_bytes = quant::QuantizeOptions{}.shard_bytes;
  bool overwrite = false;
  bool json = false;
};

quant::Conversion conversion_of(const Options& options) {
  quant::Conversion conversion;
  conversion.to = options.to == "hf"     ? quant::Layout::kHuggingFace
                  : options.to == "meta" ? quant::Layout::kMeta
                                         : quant::Layout::kGptFast;
  if (options.shards != 0 && conversion.to != quant::Layout::kMeta) {
    fail(ErrorCode::kInvalidArgument,
         "convert: --shards: found {}, expected no such option with --to {}",
         options.shards,
         options.to);
  }
  conversion.ranks = options.shards;
  if (!options.dtype.empty()) {
    conversion.dtype = options.dtype == "f32"   ? DType::kF32
                       : options.dtype == "f16" ? DType::kF16
                                                : DType::kBF16;
  }
  if (!options.requantize.empty()) {
    conversion.requantize = options.requantize;
  }
  return conversion;
}

int convert(const Options& options, const Session& session) {
  quant::QuantizeOptions job;
  job.output = options.output;
  job.shard_bytes = options.shard_bytes;
  job.memory_bytes = session.memory_bytes;
  job.overwrite = options.overwrite;
  const quant::Conversion conversion = conversion_of(options);
  set_interrupt_hint(kGoOnHint);
  const InterruptScope scope;
  Progress progress(session);
  const quant::ConvertReport report = quant::convert(
      load::open_checkpoint(store::resolve_model(options.source)),
      conversion,
      job,
      progress,
      scope.flag());
  const quant::QuantizeReport& written = report.written;
  if (options.json) {
    print_json(
        {{"path", written.output.string()},
         {"exact", report.exact},
         {"source_bytes", written.source_bytes},
         {"output_bytes", written.output_bytes},
         {"seconds", written.seconds},
         {"peak_rss_bytes", written.peak_rss_bytes},
         {"notes", written.notes},
         {"tensors", quant::read_receipt(written.output).at("tensors")}});
    return kDone;
  }
  print(fmt::format("{}: {} from {}, {}, in {} with {} of memory\n",
                    options.output,
                    format_size(written.output_bytes),
                    format_size(written.source_bytes),
                    report.exact ? "exact" : "rounded",
                    format_seconds(written.seconds),
                    format_size(written.peak_rss_bytes)));
  for (const std::string& note : written.notes) {
    print("note: " + note + "\n");
  }
  return kDone;
}

}  // namespace

void add_convert(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command = add_command(
      app,
      session,
      "convert",
      "Writes a checkpoint in another layout",
      "nibble convert models/fable-moe --to meta --shards 2 -o fable-moe-mp2",
      [options](Session& now) { return convert(*options, now); });
  command
      .add_option("source",
                  options->source,
                  "Directory of Hugging Face or Meta, or gpt-fast's model*.pth")
      ->required()
      ->type_name("SRC");
  command.add_option("--to", options->to, "Layout: hf, meta or gpt-fast")
      ->required()
      ->check(CLI::IsMember({"hf", "meta", "gpt-fast"}))
      ->type_name("LAYOUT");
  command
      .add_option(
          "-o,--output", options->output, "Directory to write: new or empty")
      ->required()
      ->type_name("OUT");
  command
      .add_option(
          "--shards",
          options->shards,
          "Files of the layout meta (as many as the source has, else 1)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}))
      ->type_name("N");
  command
      .add_option("--dtype",
                  options->dtype,
                  "Type of dense weights; a quantized source is decoded")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}))
      ->type_name("TYPE");
  command
      .add_option("--requantize",
                  options->requantize,
                  "Decode a quantized source and quantize it again by this "
                  "recipe or scheme")
      ->type_name("RECIPE");
  add_size(command,
           "--shard-size",
           options->shard_bytes,
           "Largest weight file of the layout hf (5GB)");
  command.add_flag("--overwrite",
                   options->overwrite,
                   "Replace the checkpoint that is at OUT");
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
