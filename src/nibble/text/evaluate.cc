#include "nibble/text/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/text/likelihood.h"

namespace nibble::text {
namespace {

using Clock = std::chrono::steady_clock;

// Logits of one part of a window stay below this: a vocabulary of 200,000
// would need 400 MB for 512 positions at once.
constexpr std::int64_t kLogitsBytes = 64 << 20;

void check_request(const ScoredModel& model,
                   std::span<const std::int32_t> ids,
                   const EvaluateOptions& options,
                   const ScoredModel* reference) {
  NIBBLE_CHECK(options.window >= 2,
               kInvalidArgument,
               "window: found {}, expected at least 2 tokens",
               options.window);
  NIBBLE_CHECK(options.limit >= 0,
               kInvalidArgument,
               "limit: found {}, expected 0 (all) or more",
               options.limit);
  NIBBLE_CHECK(
      reference == nullptr || reference->vocabulary == model.vocabulary,
      kInvalidArgument,
      "reference: found a vocabulary of {}, expected the model's {}",
      reference->vocabulary,
      model.vocabulary);
  const std::int64_t positions =
      reference == nullptr
          ? model.max_positions
          : std::min(model.max_positions, reference->max_positions);
  NIBBLE_CHECK(options.window <= positions,
               kInvalidArgument,
               "window: found {}, expected at most the model's {} positions",
               options.window,
               positions);
  if (static_cast<std::int64_t>(ids.size()) < options.window) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "give a longer text or a smaller --window",
                   "tokens: found {}, expected at least one window of {}",
                   ids.size(),
                   options.window);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    NIBBLE_CHECK(ids[i] >= 0 && ids[i] < model.vocabulary,
                 kInvalidArgument,
                 "tokens: found id {} at {}, expected 0 to {}",
                 ids[i],
                 i,
                 model.vocabulary - 1);
  }
}

// Figures of all positions so far. Rows are computed in parallel but each on
// its own, and summed in order: the result does not depend on threads.
class Scores {
 public:
  explicit Scores(bool compares) : compares_(compares) {}

  // logits, reference (ids, vocabulary) of a window's positions from first
  // on; window: all its ids.
  void add(const Tensor& logits,
           const Tensor& reference,
           std::span<const std::int32_t> window,
           std::int64_t first) {
    const ConstTensorView rows = logits.view();
    const std::int64_t count = rows.dim(0);
    const std::size_t known = likelihoods_.size();
    const std::size_t compared = divergences_.size();
    // The last position of a window predicts a token that is not in it.
    const std::int64_t scored =
        std::min(count, static_cast<std::int64_t>(window.size()) - 1 - first);
    likelihoods_.resize(known + static_cast<std::size_t>(scored));
    if (compares_) {
      divergences_.resize(compared + static_cast<std::size_t>(count));
      agrees_.resize(divergences_.size());
    }
    parallel_for(count, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const auto at = static_cast<std::size_t>(row);
        const auto values = rows.rows(row, 1).as<float>();  // (1, vocabulary)
        if (row < scored) {
          likelihoods_[known + at] = negative_log_likelihood(
              values, window[static_cast<std::size_t>(first + row + 1)]);
        }
        if (compares_) {
          const auto expected =
              reference.view().rows(row, 1).as<float>();  // (1, vocabulary)
          divergences_[compared + at] = divergence(expected, values);
          agrees_[compared + at] =
              most_likely(expected) == most_likely(values) ? 1 : 0;
        }
      }
    });
  }

  void end_window() {
    const double sum =
        std::accumulate(likelihoods_.begin(), likelihoods_.end(), 0.0);
    nll_sum_ += sum / static_cast<double>(likelihoods_.size());
    likelihoods_.clear();
  }

  [[nodiscard]] double nll_sum() const { return nll_sum_; }

  [[nodiscard]] Divergence divergence_of_all() const {
    const auto count = static_cast<double>(divergences_.size());
    Divergence result;
    result.mean =
        std::accumulate(divergences_.begin(), divergences_.end(), 0.0) / count;
    result.median = quantile(divergences_, 0.5);
    result.p99 = quantile(divergences_, 0.99);
    result.top1 = std::accumulate(agrees_.begin(), agrees_.end(), 0.0) / count;
    return result;
  }

 private:
  bool compares_;
  std::vector<double> likelihoods_;  // of the window that runs
  double nll_sum_ = 0;
  std::vector<double> divergences_;
  // Bytes, not bits: neighbours are written by different threads.
  std::vector<std::uint8_t> agrees_;
};

}  // namespace

EvaluateResult evaluate(
    const ScoredModel& model,
    std::span<const std::int32_t> ids,
    const EvaluateOptions& options,
    const ScoredModel* reference,
    FunctionRef<void(std::int64_t, std::int64_t)> progress) {
  check_request(model, ids, options, reference);
  EvaluateResult result;
  result.windows = static_cast<std::int64_t>(ids.size()) / options.window;
  if (options.limit > 0) {
    result.windows = std::min(result.windows, options.limit);
  }
  result.tokens = result.windows * options.window;
  const std::int64_t part = std::clamp<std::int64_t>(
      kLogitsBytes / (4 * model.vocabulary), 1, options.window);

  Scores scores(reference != nullptr);
  for (std::int64_t i = 0; i < result.windows; ++i) {
    const auto window =
        ids.subspan(static_cast<std::size_t>(i * options.window),
                    static_cast<std::size_t>(options.window));
    model.restart();
    if (reference != nullptr) {
      reference->restart();
    }
    for (std::int64_t first = 0; first < options.window; first += part) {
      const auto chunk = window.subspan(
          static_cast<std::size_t>(first),
          static_cast<std::size_t>(std::min(part, options.window - first)));
      const Clock::time_point start = Clock::now();
      const Tensor logits = model.run(chunk);
      result.seconds +=
          std::chrono::duration<double>(Clock::now() - start).count();
      scores.add(logits,
                 reference == nullptr ? Tensor() : reference->run(chunk),
                 window,
                 first);
    }
    scores.end_window();
    progress(i + 1, result.windows);
  }
  result.nll = scores.nll_sum() / static_cast<double>(result.windows);
  result.perplexity = std::exp(result.nll);
  result.tokens_per_second =
      result.seconds > 0 ? static_cast<double>(result.tokens) / result.seconds
                         : 0;
  if (reference != nullptr) {
    result.divergence = scores.divergence_of_all();
  }
  return result;
}

namespace {

// A Transformer with its cache, as ScoredModel's callables.
class Runner {
 public:
  explicit Runner(const model::Transformer& model)
      : model_(model), cache_(model.make_cache()) {}

  void restart() { cache_.truncate(0); }

  Tensor run(std::span<const std::int32_t> ids) {
    return model_.forward(ids, cache_, model::Transformer::Logits::kAll);
  }

 private:
  const model::Transformer& model_;
  model::KvCache cache_;
};

}  // namespace

EvaluateResult evaluate(
    const model::Transformer& model,
    std::span<const std::int32_t> ids,
    const EvaluateOptions& options,
    const model::Transformer* reference,
    FunctionRef<void(std::int64_t, std::int64_t)> progress) {
  Runner runner(model);
  const auto restart = [&] { runner.restart(); };
  const auto run = [&](std::span<const std::int32_t> part) {
    return runner.run(part);
  };
  const ScoredModel scored{
      model.config().vocabulary, model.config().max_positions, restart, run};
  if (reference == nullptr) {
    return evaluate(scored, ids, options, nullptr, progress);
  }
  Runner reference_runner(*reference);
  const auto reference_restart = [&] { reference_runner.restart(); };
  const auto reference_run = [&](std::span<const std::int32_t> part) {
    return reference_runner.run(part);
  };
  const ScoredModel expected{reference->config().vocabulary,
                             reference->config().max_positions,
                             reference_restart,
                             reference_run};
  return evaluate(scored, ids, options, &expected, progress);
}

}  // namespace nibble::text
