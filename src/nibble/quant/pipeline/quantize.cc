#include "nibble/quant/pipeline/quantize.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/hash/hash.h"
#include "nibble/base/memory_budget.h"
#include "nibble/base/parallel.h"
#include "nibble/base/ranks/ranks.h"
#include "nibble/container/safetensors/index.h"
#include "nibble/container/safetensors/writer.h"
#include "nibble/quant/pipeline/check/check.h"
#include "nibble/quant/pipeline/check/publish.h"
#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/quant/pipeline/execute/checksum.h"
#include "nibble/quant/pipeline/execute/execute.h"
#include "nibble/quant/pipeline/partial/journal.h"
#include "nibble/quant/pipeline/partial/partial.h"
#include "nibble/quant/pipeline/partial/shared_work.h"
#include "nibble/quant/pipeline/partial/source_watch.h"
#include "nibble/quant/pipeline/plan/layout.h"
#include "nibble/quant/pipeline/plan/output_place.h"

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

// Bytes that are read for an item.
std::uint64_t source_bytes_of(const Plan& plan,
                              const load::CheckpointDirectory& source,
                              const Item& item) {
  const auto tensors = source.reader->tensors();
  if (item.copy) {
    return tensors[plan.tensors[item.index].tensor].bytes;
  }
  const MatrixSource& matrix = plan.layers[item.index].source;
  return static_cast<std::uint64_t>(matrix.rows * matrix.columns) *
         dtype_bytes(tensors[matrix.tensor].dtype);
}

// One run, in one of the processes that share it. The leader makes and finishes
// what exists once.
class Job {
 public:
  Job(const load::CheckpointDirectory& source,
      Plan plan,
      const QuantizeOptions& options,
      Ranks& ranks,
      ProgressSink& progress,
      const std::atomic<bool>& stop)
      : source_(source),
        plan_(std::move(plan)),
        options_(options),
        ranks_(ranks),
        progress_(progress),
        stop_(stop),
        output_(resolved_output(options.output)),
        partial_(partial_path(options.output)),
        items_(items_of(plan_)),
        watch_(*source.reader),
        key_(key_of(plan_, source, watch_)) {}

  QuantizeReport run() {
    start_ = Clock::now();
    expect_same_job(ranks_, key_);
    lead([&] { prepare_directory(); });
    ranks_.together([&] { open_journals(); });
    try {
      return run_locked();
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

  [[nodiscard]] bool leads() const { return ranks_.rank() == 0; }

  // The leader does it while the others wait.
  void lead(FunctionRef<void()> work) {
    ranks_.together([&] {
      if (leads()) {
        work();
      }
    });
  }

  void prepare_directory();
  void open_journals();
  QuantizeReport run_locked();
  std::unique_ptr<container::CheckpointWriter> open_files();
  void distrust(const container::CheckpointWriter& writer, Results& claims);
  [[nodiscard]] std::size_t source_file(std::size_t item) const;
  std::vector<ItemResult> write_tensors();
  std::vector<ItemResult> write_items(container::CheckpointWriter& writer,
                                      Results results,
                                      const std::vector<bool>& own);
  void merge_journals(std::span<const std::size_t> from_others,
                      std::span<const ItemResult> results);
  std::vector<CopiedFile> write_side_files();
  QuantizeReport report();
  [[noreturn]] void leave(const Error& error) const;

  const load::CheckpointDirectory& source_;
  Plan plan_;
  const QuantizeOptions& options_;
  Ranks& ranks_;
  ProgressSink& progress_;
  const std::atomic<bool>& stop_;
  const fs::path output_;
  const fs::path partial_;
  const std::vector<Item> items_;
  const SourceWatch watch_;
  const JobKey key_;
  std::optional<Journal> journal_;
  std::vector<File> locks_;  // of journals of processes that are no more
  Clock::time_point start_;
  std::size_t resumed_ = 0;
  std::size_t finished_ = 0;  // items that journals tell of
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

void Job::open_journals() {
  journal_ = Journal::open(partial_, key_, ranks_.rank());
  if (!leads()) {
    return;
  }
  // An earlier run of more processes left journals that are nobody's now,
  // unless one of those processes still runs.
  std::vector<fs::path> others;
  for (const fs::path& path : journals_in(partial_)) {
    const std::string number = path.extension().string().substr(1);
    if (path.filename() != kJournalName &&
        std::stoi(number) >= ranks_.count()) {
      others.push_back(path);
    }
  }
  auto locks = lock_all(others);
  if (!locks) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "wait for it, or end it",
                   "output {}: found a process of an earlier run at work on it",
                   output_.string());
  }
  locks_ = std::move(*locks);
}

// The files at their full size: made by the leader, then opened by all.
std::unique_ptr<container::CheckpointWriter> Job::open_files() {
  std::unique_ptr<container::CheckpointWriter> writer;
  const auto open = [&] {
    step("reserve");
    writer = container::write_files(plan_.file_kind,
                                    partial_,
                                    files_of(plan_),
                                    container::ExistingFiles::kContinue);
  };
  lead(open);
  ranks_.together([&] {
    if (!leads()) {
      open();
    }
  });
  return writer;
}

// Forgets claims whose bytes on disk are not what a journal says.
void Job::distrust(const container::CheckpointWriter& writer, Results& claims) {
  std::unordered_map<std::string_view, std::uint64_t> bytes;  // by name
  for (const auto& shard : plan_.shards) {
    for (const container::TensorInfo& tensor : shard) {
      bytes.emplace(tensor.name, tensor.bytes);
    }
  }
  for (const PlannedLayer& layer : plan_.layers) {
    for (const container::TensorInfo& output : layer.outputs) {
      bytes.emplace(output.name, output.bytes);  // parts of tensors, too
    }
  }
  const auto holds = [&](const std::string& name, const std::string& checksum) {
    return checksum_of(writer, name, bytes.at(name)) == checksum;
  };
  parallel_for(static_cast<std::int64_t>(items_.size()),
               1,
               [&](std::int64_t begin, std::int64_t) {
                 const auto i = static_cast<std::size_t>(begin);
                 if (!claims[i] || !checks_item(ranks_, i)) {
                   return;
                 }
                 stop_if_asked(stop_);
                 const std::vector<std::string> names =
                     output_names(plan_, items_[i]);
                 bool good = names.size() == claims[i]->output_checksums.size();
                 for (std::size_t j = 0; good && j < names.size(); ++j) {
                   good = holds(names[j], claims[i]->output_checksums[j]);
                 }
                 if (!good) {
                   claims[i].reset();
                 }
               });
  agree_on(ranks_, claims);
}

// The file that an item is read from, as an index into reader->files().
std::size_t Job::source_file(std::size_t item) const {
  const Item& of = items_[item];
  const std::size_t tensor = of.copy ? plan_.tensors[of.index].tensor
                                     : plan_.layers[of.index].source.tensor;
  return source_.reader->tensors()[tensor].file;
}

std::vector<ItemResult> Job::write_tensors() {
  Results done = claims_in(partial_, key_, items_.size());
  const auto claimed = [](const auto& result) { return result.has_value(); };
  finished_ = static_cast<std::size_t>(
      std::count_if(done.begin(), done.end(), claimed));
  const auto writer = open_files();
  distrust(*writer, done);
  resumed_ = static_cast<std::size_t>(
      std::count_if(done.begin(), done.end(), claimed));

  std::vector<std::uint64_t> weights;
  for (const Item& item : items_) {
    weights.push_back(source_bytes_of(plan_, source_, item));
  }
  const std::vector<bool> own = own_items(ranks_, done, weights);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    total += own[i] ? weights[i] : 0;
  }
  progress_.begin("quantizing", total);
  std::vector<ItemResult> results = write_items(*writer, std::move(done), own);
  progress_.end();
  if (!leads()) {
    step("sync");
    writer->sync();
  }
  merge_journals(exchange(ranks_, own, results), results);
  lead([&] {
    step("finish");
    writer->finish();
    step("sync");
    writer->sync();
  });
  return results;
}

// Makes own items; results of other processes stay empty.
std::vector<ItemResult> Job::write_items(container::CheckpointWriter& writer,
                                         Results results,
                                         const std::vector<bool>& own) {
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (!results[i] && !own[i]) {
      results[i].emplace();
    }
  }
  return execute({.plan = plan_,
                  .source = source_,
                  .writer = writer,
                  .progress = progress_,
                  .stop = stop_,
                  .results = std::move(results),
                  .finished =
                      [&](std::size_t item, const ItemResult& result) {
                        watch_.check(source_file(item));
                        step("journal");
                        journal_->append(item, result);
                        ++finished_;
                      },
                  .before_step = options_.before_step,
                  .codes = options_.codes.get()});
}

// From here on the leader's journal tells everything, and is the only one:
// publishing removes it with the last step.
void Job::merge_journals(std::span<const std::size_t> from_others,
                         std::span<const ItemResult> results) {
  ranks_.together([&] {
    if (!leads()) {
      journal_.reset();
      return;
    }
    for (const std::size_t item : from_others) {
      journal_->append(item, results[item]);
    }
  });
  lead([&] {
    locks_.clear();
    for (const fs::path& path : journals_in(partial_)) {
      if (path.filename() != kJournalName) {
        fs::remove(path);
      }
    }
  });
}

// Everything but weights and receipt.
std::vector<CopiedFile> Job::write_side_files() {
  step("index");
  if (plan_.file_kind == container::FileKind::kSafetensors &&
      plan_.shards.size() > 1) {
    container::write_safetensors_index(partial_, files_of(plan_));
  }
  std::vector<CopiedFile> files =
      copy_side_files(source_, partial_, options_.before_step);
  step("config");
  for (const auto& [name, text] :
       {std::pair(kConfigName, &plan_.config_text),
        std::pair(kParamsName, &plan_.params_text)}) {
    if (!text->empty()) {
      write_file_atomically(partial_ / name, *text);
    }
  }
  for (const std::string_view name : {std::string_view(kConfigName),
                                      container::kSafetensorsIndexName,
                                      std::string_view(kParamsName)}) {
    if (name == kParamsName && plan_.params_text.empty()) {
      continue;  // a side file, if any
    }
    if (fs::exists(partial_ / name)) {
      files.push_back(digest_of_file(partial_ / name));
      files.back().name = name;
    }
  }
  return files;
}

QuantizeReport Job::report() {
  QuantizeReport report;
  report.output = output_;
  report.source_bytes = plan_.source_bytes;
  report.output_bytes = plan_.output_bytes;
  report.bits_per_weight = plan_.bits_per_weight;
  report.resumed_parts = resumed_;
  report.notes = plan_.notes;
  report.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  for (const std::string& bytes :
       ranks_.gather(std::to_string(peak_resident_bytes()))) {
    report.peak_rss_bytes =
        std::max<std::uint64_t>(report.peak_rss_bytes, std::stoull(bytes));
  }
  return report;
}

QuantizeReport Job::run_locked() {
  const std::vector<ItemResult> results = write_tensors();
  std::vector<CopiedFile> files;
  lead([&] {
    watch_.check_all();
    files = write_side_files();
  });
  ranks_.together([&] {
    step("check");
    check_output(plan_,
                 results,
                 partial_,
                 {static_cast<std::size_t>(ranks_.rank()),
                  static_cast<std::size_t>(ranks_.count())},
                 progress_,
                 stop_);
  });
  QuantizeReport made = report();
  // Of all ranks, and of this one with the receipt's text in its memory.
  const auto figures = [&]() -> RunFigures {
    made.peak_rss_bytes =
        std::max<std::uint64_t>(made.peak_rss_bytes, peak_resident_bytes());
    return {made.seconds, made.peak_rss_bytes};
  };
  lead([&] {
    step("receipt");
    write_file_atomically(
        partial_ / kReceiptName,
        receipt_text(plan_, source_, results, files, figures));
    publish(partial_, output_, options_.overwrite, options_.before_step);
  });
  return made;
}

// Keeps what a later run can use, removes the rest, and says so.
void Job::leave(const Error& error) const {
  // Otherwise other processes are still at work here, until they are ended.
  const bool over = ranks_.count() == 1 || ranks_.failed_together();
  const bool useful = may_continue(error.code()) && finished_ > 0;
  if (over && !useful) {
    if (leads()) {
      try {
        remove_journal_last(partial_);
      } catch (const fs::filesystem_error&) {
        // The first failure is the one to tell.
      }
    }
    throw error;  // NOLINT: the same error goes on
  }
  std::string hint = error.hint();
  if (may_continue(error.code()) && hint.find(kGoOn) == std::string::npos) {
    hint += hint.empty() ? "" : "; ";
    hint += fmt::format("{} to go on from here", kGoOn);
  }
  hint += hint.empty() ? "" : may_continue(error.code()) ? ", or " : "; ";
  hint += "remove what is there: nibble clean " + partial_.string();
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

// Processes of one machine share its memory.
QuantizeOptions with_share(QuantizeOptions options, const Ranks& ranks) {
  if (options.memory_bytes == 0 && ranks.count_here() > 1) {
    options.memory_bytes = available_memory_bytes() / 2 /
                           static_cast<std::uint64_t>(ranks.count_here());
  }
  return options;
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
  const std::unique_ptr<Ranks> alone = single_rank();
  Ranks& ranks = options.ranks == nullptr ? *alone : *options.ranks;
  std::optional<QuantizeReport> published;
  ranks.together([&] {
    if (ranks.rank() == 0) {
      published = already_published(source, recipe, options);
    }
  });
  if (ranks.gather(published ? "published" : "").front() == "published") {
    return published.value_or(QuantizeReport{});
  }
  std::optional<Plan> plan;
  ranks.together(
      [&] { plan = make_plan(source, recipe, with_share(options, ranks)); });
  try {
    return Job(source, std::move(*plan), options, ranks, progress, stop).run();
  } catch (const fs::filesystem_error& error) {
    fail(ErrorCode::kIo, "{}", error.what());
  }
}

}  // namespace nibble::quant
