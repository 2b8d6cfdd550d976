#include "nibble/quant/pipeline/quantize.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/file.h"
#include "nibble/base/hash.h"
#include "nibble/base/memory_budget.h"
#include "nibble/base/parallel.h"
#include "nibble/container/safetensors/index.h"
#include "nibble/container/safetensors/writer.h"
#include "nibble/quant/pipeline/check.h"
#include "nibble/quant/pipeline/execute.h"
#include "nibble/quant/pipeline/journal.h"
#include "nibble/quant/pipeline/layout.h"
#include "nibble/quant/pipeline/output_place.h"
#include "nibble/quant/pipeline/partial/partial.h"
#include "nibble/quant/pipeline/partial/source_watch.h"
#include "nibble/quant/pipeline/publish.h"
#include "nibble/quant/pipeline/receipt.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Results = std::vector<std::optional<ItemResult>>;

// Whether the same call may succeed after such a failure: nothing is wrong with
// the source and the recipe themselves.
bool may_continue(ErrorCode code) {
  return code != ErrorCode::kCorruptData && code != ErrorCode::kUnsupported &&
         code != ErrorCode::kBadRecipe && code != ErrorCode::kInvalidArgument;
}

JobKey key_of(const Plan& plan,
              const load::CheckpointDirectory& source,
              const SourceWatch& watch) {
  return {NIBBLE_VERSION,
          watch.digest(),
          hash_bytes(std::as_bytes(std::span(plan.recipe_json))),
          plan_hash(plan, source),
          fs::weakly_canonical(source.path).string()};
}

// The words of every hint by which an interrupted job goes on.
constexpr const char* kGoOn = "run the same command again";

// Outputs of an item by their names.
std::vector<std::string> output_names(const Plan& plan, const Item& item) {
  if (item.copy) {
    return plan.tensors[item.index].outputs;
  }
  std::vector<std::string> names;
  for (const auto& output : plan.layers[item.index].outputs) {
    names.push_back(output.name);
  }
  return names;
}

class Job {
 public:
  Job(const load::CheckpointDirectory& source,
      Plan plan,
      const QuantizeOptions& options,
      ProgressSink& progress,
      const std::atomic<bool>& stop)
      : source_(source),
        plan_(std::move(plan)),
        options_(options),
        progress_(progress),
        stop_(stop),
        output_(resolved_output(options.output)),
        partial_(partial_path(options.output)),
        items_(items_of(plan_)),
        watch_(*source.reader),
        key_(key_of(plan_, source, watch_)) {}

  QuantizeReport run() {
    start_ = Clock::now();
    prepare_directory();
    Journal journal = Journal::open(partial_, key_);
    try {
      return run_in(journal);
    } catch (const Error& error) {
      leave(error);
    } catch (const fs::filesystem_error& error) {
      leave(Error(ErrorCode::kIo, error.what()));
    } catch (const std::bad_alloc&) {
      leave(Error(ErrorCode::kOverBudget,
                  "memory: found none left, expected room for a tile",
                  "give a smaller --memory"));
    }
  }

 private:
  void step(std::string_view name) const {
    if (options_.before_step) {
      options_.before_step(name);
    }
  }

  void prepare_directory();
  QuantizeReport run_in(Journal& journal);
  Results claimed_results(Journal& journal);
  void distrust(const container::CheckpointWriter& writer, Results& results);
  [[nodiscard]] std::size_t source_file(std::size_t item) const;
  std::vector<ItemResult> write_tensors(Journal& journal);
  [[noreturn]] void leave(const Error& error) const;

  const load::CheckpointDirectory& source_;
  Plan plan_;
  const QuantizeOptions& options_;
  ProgressSink& progress_;
  const std::atomic<bool>& stop_;
  const fs::path output_;
  const fs::path partial_;
  const std::vector<Item> items_;
  const SourceWatch watch_;
  const JobKey key_;
  Clock::time_point start_;
  std::size_t resumed_ = 0;
  std::size_t finished_ = 0;  // items that the journal tells of
};

// Makes the partial directory, or accepts the one that is there.
void Job::prepare_directory() {
  step("create");
  if (fs::exists(partial_) && !fs::exists(partial_ / kJournalName) &&
      !fs::is_empty(partial_)) {
    // A run that replaced a checkpoint was stopped before it removed the old
    // one, which carries a receipt.
    if (!options_.overwrite || !fs::exists(partial_ / kReceiptName)) {
      fail_with_hint(ErrorCode::kInvalidArgument,
                     "delete it, or choose another output",
                     "{}: found a directory that holds no work of nibble",
                     partial_.string());
    }
    fs::remove_all(partial_);
  }
  fs::create_directories(partial_);
}

// What an earlier run claims to have finished.
Results Job::claimed_results(Journal& journal) {
  Results results = journal.take_results(items_.size());
  finished_ = static_cast<std::size_t>(
      std::count_if(results.begin(), results.end(), [](const auto& result) {
        return result.has_value();
      }));
  return results;
}

// Forgets results whose bytes on disk are not what the journal says.
void Job::distrust(const container::CheckpointWriter& writer,
                   Results& results) {
  std::unordered_map<std::string_view, std::uint64_t> bytes;  // by name
  for (const auto& shard : plan_.shards) {
    for (const container::TensorInfo& tensor : shard) {
      bytes.emplace(tensor.name, tensor.bytes);
    }
  }
  const auto holds = [&](const std::string& name, const std::string& checksum) {
    return checksum_of(writer, name, bytes.at(name)) == checksum;
  };
  parallel_for(
      static_cast<std::int64_t>(items_.size()),
      1,
      [&](std::int64_t begin, std::int64_t) {
        const auto i = static_cast<std::size_t>(begin);
        if (!results[i]) {
          return;
        }
        stop_if_asked(stop_);
        const std::vector<std::string> names = output_names(plan_, items_[i]);
        bool good = names.size() == results[i]->output_checksums.size();
        for (std::size_t j = 0; good && j < names.size(); ++j) {
          good = holds(names[j], results[i]->output_checksums[j]);
        }
        if (!good) {
          results[i].reset();
        }
      });
}

std::vector<ItemResult> Job::write_tensors(Journal& journal) {
  Results done = claimed_results(journal);
  step("reserve");
  const auto writer =
      container::write_files(plan_.file_kind,
                             partial_,
                             files_of(plan_),
                             container::ExistingFiles::kContinue);
  distrust(*writer, done);
  for (const auto& result : done) {
    resumed_ += result.has_value() ? 1 : 0;
  }
  progress_.begin("quantizing", plan_.source_bytes);
  std::vector<ItemResult> results =
      execute({.plan = plan_,
               .source = source_,
               .writer = *writer,
               .progress = progress_,
               .stop = stop_,
               .results = std::move(done),
               .finished =
                   [&](std::size_t item, const ItemResult& result) {
                     watch_.check(source_file(item));
                     step("journal");
                     journal.append(item, result);
                     ++finished_;
                   },
               .before_step = options_.before_step});
  progress_.end();
  step("finish");
  writer->finish();
  step("sync");
  writer->sync();
  return results;
}

// The file that an item is read from, as an index into reader->files().
std::size_t Job::source_file(std::size_t item) const {
  const Item& of = items_[item];
  const std::size_t tensor = of.copy ? plan_.tensors[of.index].tensor
                                     : plan_.layers[of.index].source.tensor;
  return source_.reader->tensors()[tensor].file;
}

QuantizeReport Job::run_in(Journal& journal) {
  const std::vector<ItemResult> results = write_tensors(journal);
  watch_.check_all();
  step("index");
  if (plan_.file_kind == container::FileKind::kSafetensors &&
      plan_.shards.size() > 1) {
    container::write_safetensors_index(partial_, files_of(plan_));
  }
  std::vector<CopiedFile> files =
      copy_side_files(source_, partial_, options_.before_step);
  step("config");
  write_file_atomically(partial_ / kConfigName, plan_.config_text);
  for (const std::string_view name :
       {std::string_view(kConfigName), container::kSafetensorsIndexName}) {
    if (fs::exists(partial_ / name)) {
      files.push_back(digest_of_file(partial_ / name));
      files.back().name = name;
    }
  }
  step("check");
  check_output(plan_, results, partial_, progress_, stop_);

  QuantizeReport report;
  report.output = output_;
  report.source_bytes = plan_.source_bytes;
  report.output_bytes = plan_.output_bytes;
  report.bits_per_weight = plan_.bits_per_weight;
  report.resumed_parts = resumed_;
  report.notes = plan_.notes;
  report.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  report.peak_rss_bytes = peak_resident_bytes();
  step("receipt");
  write_file_atomically(partial_ / kReceiptName,
                        receipt_text(plan_,
                                     source_,
                                     results,
                                     files,
                                     {report.seconds, report.peak_rss_bytes}));
  publish(partial_, output_, options_.overwrite, options_.before_step);
  return report;
}

// Keeps what a later run can use, removes the rest, and says so.
void Job::leave(const Error& error) const {
  const bool keep = may_continue(error.code()) && finished_ > 0;
  if (!keep) {
    try {
      remove_journal_last(partial_);
    } catch (const fs::filesystem_error&) {
      // The first failure is the one to tell.
    }
    throw error;  // NOLINT: the same error goes on
  }
  std::string hint = error.hint();
  if (hint.find(kGoOn) == std::string::npos) {
    hint += hint.empty() ? "" : "; ";
    hint += fmt::format("{} to go on from here", kGoOn);
  }
  hint += ", or remove what is there: nibble clean " + partial_.string();
  throw Error(error.code(), error.what(), hint);
}

// A run that was killed after its result had appeared left only the journal.
std::optional<QuantizeReport> already_published(
    const load::CheckpointDirectory& source,
    const Recipe& recipe,
    QuantizeOptions options) {
  const fs::path output = resolved_output(options.output);
  const std::optional<JobKey> key = Journal::key_in(output);
  if (!key || !fs::exists(output / kReceiptName)) {
    return std::nullopt;
  }
  options.overwrite = true;  // the result is no obstacle to its own plan
  const Plan plan = make_plan(source, recipe, options);
  if (plan_hash(plan, source) != key->plan) {
    return std::nullopt;
  }
  QuantizeReport report;
  report.output = output;
  report.source_bytes = plan.source_bytes;
  report.output_bytes = plan.output_bytes;
  report.bits_per_weight = plan.bits_per_weight;
  report.resumed_parts = items_of(plan).size();
  report.notes = plan.notes;
  const nlohmann::json receipt = read_receipt(output);
  report.seconds = receipt.at("seconds").get<double>();
  report.peak_rss_bytes = receipt.at("peak_rss_bytes").get<std::uint64_t>();
  fs::remove_all(partial_path(output));  // the replaced one, if any
  fs::remove(output / kJournalName);
  return report;
}

}  // namespace

QuantizeReport quantize(const load::CheckpointDirectory& source,
                        const Recipe& recipe,
                        const QuantizeOptions& options,
                        ProgressSink& progress,
                        const std::atomic<bool>& stop) {
  NIBBLE_CHECK(!options.output.empty(),
               kInvalidArgument,
               "output: found no path, expected a directory");
  if (auto report = already_published(source, recipe, options)) {
    return std::move(*report);
  }
  Plan plan = make_plan(source, recipe, options);
  try {
    return Job(source, std::move(plan), options, progress, stop).run();
  } catch (const fs::filesystem_error& error) {
    fail(ErrorCode::kIo, "{}", error.what());
  }
}

}  // namespace nibble::quant
