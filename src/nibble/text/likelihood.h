#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nibble::text {

// Sums over a vocabulary, in float64 from float32 logits. All throw
// kCorruptData when a logit is NaN or +Inf, or none is finite.

// -ln softmax(logits)[target], in nats. 0 <= target < logits.size().
[[nodiscard]] double negative_log_likelihood(std::span<const float> logits,
                                             std::int32_t target);

// Kullback-Leibler divergence of softmax(logits) from softmax(reference), in
// nats: sum of p_reference (ln p_reference - ln p). Spans of equal size.
[[nodiscard]] double divergence(std::span<const float> reference,
                                std::span<const float> logits);

// The most likely token; the lowest id among equals.
[[nodiscard]] std::int32_t most_likely(std::span<const float> logits);

// The value below which the fraction q of values lies, interpolated linearly
// between the two nearest (as numpy.quantile). values must not be empty.
[[nodiscard]] double quantile(std::vector<double> values, double q);

}  // namespace nibble::text
