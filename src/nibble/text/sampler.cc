#include "nibble/text/sampler.h"

#include <algorithm>
#include <cmath>

#include "nibble/base/error.h"

namespace nibble::text {

std::uint64_t Random::next() {
  state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return mixed ^ (mixed >> 31);
}

double Random::uniform() {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

Sampler::Sampler(const SamplingOptions& options)
    : options_(options), random_(options.seed) {
  // Each comparison is false for NaN.
  NIBBLE_CHECK(options.temperature >= 0 && std::isfinite(options.temperature),
               kInvalidArgument,
               "temperature: found {}, expected 0 or more",
               options.temperature);
  NIBBLE_CHECK(options.top_k >= 0,
               kInvalidArgument,
               "top-k: found {}, expected 0 (all) or more",
               options.top_k);
  NIBBLE_CHECK(options.top_p > 0 && options.top_p <= 1,
               kInvalidArgument,
               "top-p: found {}, expected more than 0, at most 1",
               options.top_p);
  NIBBLE_CHECK(options.min_p >= 0 && options.min_p <= 1,
               kInvalidArgument,
               "min-p: found {}, expected 0 to 1",
               options.min_p);
  NIBBLE_CHECK(options.repetition_penalty > 0 &&
                   std::isfinite(options.repetition_penalty),
               kInvalidArgument,
               "repetition penalty: found {}, expected more than 0",
               options.repetition_penalty);
}

std::int32_t Sampler::sample(std::span<const float> logits,
                             std::span<const std::int32_t> history) {
  load(logits, history);
  if (options_.temperature == 0) {
    return std::max_element(candidates_.begin(), candidates_.end())->id;
  }
  if (options_.top_k > 0) {
    keep_top_k();
  }
  if (options_.top_p < 1) {
    keep_top_p();
  }
  if (options_.min_p > 0) {
    keep_min_p();
  }
  return draw();
}

void Sampler::load(std::span<const float> logits,
                   std::span<const std::int32_t> history) {
  candidates_.clear();
  candidates_.reserve(logits.size());
  bool possible = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    // -Inf is a forbidden token; +Inf and NaN are broken weights.
    NIBBLE_CHECK(!std::isnan(logit) && !(std::isinf(logit) && logit > 0),
                 kCorruptData,
                 "logits: found {} for token {}, expected a number",
                 logit,
                 i);
    possible = possible || std::isfinite(logit);
    candidates_.push_back({logit, static_cast<std::int32_t>(i)});
  }
  NIBBLE_CHECK(possible,
               kCorruptData,
               "logits: found no finite one among {}",
               logits.size());
  if (options_.repetition_penalty == 1) {
    return;
  }
  const double penalty = options_.repetition_penalty;
  for (const std::int32_t id : history) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) {
      continue;
    }
    // From the original logit, so that an id counts once.
    const double logit = logits[static_cast<std::size_t>(id)];
    candidates_[static_cast<std::size_t>(id)].logit =
        logit > 0 ? logit / penalty : logit * penalty;
  }
}

void Sampler::keep_top_k() {
  const auto count = static_cast<std::size_t>(options_.top_k);
  if (count >= candidates_.size()) {
    return;
  }
  const auto more_likely = [](const Candidate& a, const Candidate& b) {
    return b < a;
  };
  std::nth_element(candidates_.begin(),
                   candidates_.begin() + static_cast<std::ptrdiff_t>(count),
                   candidates_.end(),
                   more_likely);
  candidates_.resize(count);
  // A fixed order: sums must not depend on how the elements were moved.
  std::sort(candidates_.begin(), candidates_.end(), more_likely);
}

void Sampler::keep_top_p() {
  const double best =
      std::max_element(candidates_.begin(), candidates_.end())->logit;
  const auto weight = [&](const Candidate& candidate) {
    return std::exp((candidate.logit - best) / options_.temperature);
  };
  double total = 0;
  for (const Candidate& candidate : candidates_) {
    total += weight(candidate);
  }
  // A heap orders only as many as the set takes, mostly a few of 100,000.
  std::make_heap(candidates_.begin(), candidates_.end());
  std::vector<Candidate> kept;
  double sum = 0;
  auto end = candidates_.end();
  while (end != candidates_.begin() && sum < options_.top_p * total) {
    std::pop_heap(candidates_.begin(), end);
    --end;
    kept.push_back(*end);
    sum += weight(*end);
  }
  candidates_ = std::move(kept);
}

void Sampler::keep_min_p() {
  const double best =
      std::max_element(candidates_.begin(), candidates_.end())->logit;
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return std::exp((candidate.logit - best) / options_.temperature) <
           options_.min_p;
  });
}

std::int32_t Sampler::draw() {
  const double best =
      std::max_element(candidates_.begin(), candidates_.end())->logit;
  double total = 0;
  for (Candidate& candidate : candidates_) {
    // The field holds the weight from here on.
    candidate.logit = std::exp((candidate.logit - best) / options_.temperature);
    total += candidate.logit;
  }
  double left = random_.uniform() * total;
  std::int32_t last = candidates_.front().id;
  for (const Candidate& candidate : candidates_) {
    if (candidate.logit <= 0) {
      continue;
    }
    last = candidate.id;
    if (left < candidate.logit) {
      break;
    }
    left -= candidate.logit;
  }
  return last;
}

}  // namespace nibble::text
