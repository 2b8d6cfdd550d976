#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "nibble/base/function_ref.h"
#include "nibble/model/transformer.h"

namespace nibble::text {

struct EvaluateOptions {
  std::int64_t window = 512;  // tokens that run on one empty cache
  std::int64_t limit = 0;     // windows at most; 0 = all
};

// How far a model's next-token distributions are from a reference's, over
// all positions of all windows, in nats.
struct Divergence {
  double mean = 0;
  double median = 0;
  double p99 = 0;
  double top1 = 0;  // share of positions with the same most likely token
};

struct EvaluateResult {
  // Mean over windows of the mean -ln p over their last window - 1 tokens.
  double nll = 0;
  double perplexity = 0;  // exp(nll)
  std::int64_t windows = 0;
  std::int64_t tokens = 0;  // run, windows * window
  double seconds = 0;       // of the model alone, without the reference
  double tokens_per_second = 0;
  std::optional<Divergence> divergence;  // when there was a reference
};

// Measures model on ids cut into windows; a rest shorter than a window is
// dropped. reference may be null; else it must have the same vocabulary.
// progress(windows done, windows in all) is called after each window.
// kInvalidArgument for fewer ids than a window, a window below 2 or above the
// positions of a model, ids outside the vocabulary.
[[nodiscard]] EvaluateResult evaluate(
    const model::Transformer& model,
    std::span<const std::int32_t> ids,
    const EvaluateOptions& options,
    const model::Transformer* reference,
    FunctionRef<void(std::int64_t, std::int64_t)> progress);

// What evaluation needs to know of a model.
struct ScoredModel {
  std::int64_t vocabulary = 0;
  std::int64_t max_positions = 0;
  // Forgets what was run.
  FunctionRef<void()> restart;
  // Runs ids behind what was run before; the logits of all of them (ids,
  // vocabulary).
  FunctionRef<Tensor(std::span<const std::int32_t> ids)> run;
};

// The measurement of evaluate() over any models.
[[nodiscard]] EvaluateResult evaluate(
    const ScoredModel& model,
    std::span<const std::int32_t> ids,
    const EvaluateOptions& options,
    const ScoredModel* reference,
    FunctionRef<void(std::int64_t, std::int64_t)> progress);

}  // namespace nibble::text
