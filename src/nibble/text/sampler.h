#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nibble::text {

// How the next token is chosen. Filters apply in the order of the fields.
struct SamplingOptions {
  // Logits of tokens that occurred before are divided by this when positive
  // and multiplied when negative (Keskar et al. 2019, section 4.1); > 0.
  double repetition_penalty = 1;
  double temperature = 0;  // 0: the most likely token, always
  std::int64_t top_k = 0;  // only the k most likely; 0 = all
  double top_p = 1;        // the smallest set with this much probability
  double min_p = 0;        // at least this share of the likeliest's probability
  std::uint64_t seed = 0;
};

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  [[nodiscard]] std::uint64_t next();
  // In [0, 1), a multiple of 2^-53.
  [[nodiscard]] double uniform();

 private:
  std::uint64_t state_;
};

// Chooses tokens for one sequence. Among equal logits the lowest id comes
// first; the same seed and logits give the same tokens. Not thread-safe.
class Sampler {
 public:
  // kInvalidArgument, with the option's name, for a value out of range.
  explicit Sampler(const SamplingOptions& options);

  // The next token; logits (vocabulary). history: the ids so far, prompt
  // included, for the repetition penalty; ids outside the vocabulary are
  // ignored. kCorruptData when a logit is NaN or +Inf, or all are -Inf.
  [[nodiscard]] std::int32_t sample(std::span<const float> logits,
                                    std::span<const std::int32_t> history);

 private:
  struct Candidate {
    double logit;
    std::int32_t id;

    // Less likely: heaps keep the likeliest on top.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
    }
  };

  void load(std::span<const float> logits,
            std::span<const std::int32_t> history);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  [[nodiscard]] std::int32_t draw();

  SamplingOptions options_;
  Random random_;
  std::vector<Candidate> candidates_;
};

}  // namespace nibble::text
