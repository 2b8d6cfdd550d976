#include "nibble/text/likelihood.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nibble/base/error.h"

namespace nibble::text {
namespace {

double largest(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    NIBBLE_CHECK(!std::isnan(logits[i]),
                 kCorruptData,
                 "logits: found NaN for token {}, expected a number",
                 i);
    best = std::max(best, logits[i]);
  }
  NIBBLE_CHECK(std::isfinite(best),
               kCorruptData,
               "logits: found {} as the largest of {}, expected a number",
               best,
               logits.size());
  return best;
}

// ln softmax of single logits. The largest and the sum are kept apart: added,
// huge logits would swallow the sum.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits) : best_(largest(logits)) {
    double sum = 0;
    for (const float logit : logits) {
      sum += std::exp(logit - best_);
    }
    log_sum_ = std::log(sum);
  }

  [[nodiscard]] double operator()(float logit) const {
    return logit - best_ - log_sum_;
  }

 private:
  double best_;
  double log_sum_ = 0;
};

}  // namespace

double negative_log_likelihood(std::span<const float> logits,
                               std::int32_t target) {
  return -LogSoftmax(logits)(logits[static_cast<std::size_t>(target)]);
}

double divergence(std::span<const float> reference,
                  std::span<const float> logits) {
  NIBBLE_CHECK(reference.size() == logits.size(),
               kInvalidArgument,
               "divergence: found {} logits, expected the reference's {}",
               logits.size(),
               reference.size());
  const LogSoftmax log_reference(reference);
  const LogSoftmax log_model(logits);
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double log_p = log_reference(reference[i]);
    const double p = std::exp(log_p);
    if (p > 0) {  // 0 ln 0 = 0
      sum += p * (log_p - log_model(logits[i]));
    }
  }
  // Never negative but for rounding.
  return std::max(sum, 0.0);
}

std::int32_t most_likely(std::span<const float> logits) {
  static_cast<void>(largest(logits));
  return static_cast<std::int32_t>(
      std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double quantile(std::vector<double> values, double q) {
  NIBBLE_ASSERT(!values.empty() && q >= 0 && q <= 1);
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const double share = place - static_cast<double>(below);
  return values[below] + share * (values[above] - values[below]);
}

}  // namespace nibble::text
