#include "nibble/text/evaluate.h"

#include <cmath>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble::text {
namespace {

using Ids = std::vector<std::int32_t>;

// A model that gives the token after id (cyclically) the given logit and all
// others 0, and remembers how it was asked.
class Cycle {
 public:
  Cycle(std::int64_t vocabulary, float logit)
      : vocabulary_(vocabulary), logit_(logit) {}

  [[nodiscard]] ScoredModel scored() const {
    return {vocabulary_, max_positions, restart_, run_};
  }

  std::int64_t max_positions = 100;
  int restarts = 0;
  std::vector<std::size_t> parts;

 private:
  struct Restart {
    Cycle* owner;

    void operator()() const { ++owner->restarts; }
  };

  struct Run {
    Cycle* owner;

    Tensor operator()(std::span<const std::int32_t> ids) const {
      owner->parts.push_back(ids.size());
      Tensor logits = Tensor::zeros(
          DType::kF32,
          {static_cast<std::int64_t>(ids.size()), owner->vocabulary_});
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::int64_t next = (ids[i] + 1) % owner->vocabulary_;
        logits.view()
            .as<float>()[i * static_cast<std::size_t>(owner->vocabulary_) +
                         static_cast<std::size_t>(next)] = owner->logit_;
      }
      return logits;
    }
  };

  std::int64_t vocabulary_;
  float logit_;
  Restart restart_{this};
  Run run_{this};
};

const auto kQuiet = [](std::int64_t, std::int64_t) {};

EvaluateOptions window(std::int64_t tokens, std::int64_t limit = 0) {
  EvaluateOptions options;
  options.window = tokens;
  options.limit = limit;
  return options;
}

TEST(Evaluate, AUniformModelHasThePerplexityOfItsVocabulary) {
  const Cycle model(5, 0);
  const EvaluateResult result = evaluate(
      model.scored(), Ids{0, 1, 2, 3, 4, 0, 1}, window(3), nullptr, kQuiet);
  EXPECT_NEAR(result.perplexity, 5, 1e-9);
  EXPECT_NEAR(result.nll, std::log(5.0), 1e-9);
  EXPECT_EQ(result.windows, 2);
  EXPECT_EQ(result.tokens, 6);  // the rest is dropped
  EXPECT_FALSE(result.divergence.has_value());
}

TEST(Evaluate, AveragesOverWindowsTheMeansOfTheirLastPositions) {
  // Each hit gives p = 3 / (3 + 1) with two tokens, each miss 1 / 4.
  const Cycle model(2, std::log(3.0F));
  const double hit = std::log(4.0 / 3);
  const double miss = std::log(4.0);
  // Window 0: 0 1 1 = hit, miss. Window 1: 1 0 1 = hit, hit. The step between
  // the windows is not scored.
  const EvaluateResult result = evaluate(
      model.scored(), Ids{0, 1, 1, 1, 0, 1}, window(3), nullptr, kQuiet);
  EXPECT_NEAR(result.nll, ((hit + miss) / 2 + hit) / 2, 1e-6);
}

TEST(Evaluate, EachWindowStartsEmpty) {
  Cycle model(4, 0);
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;
  const auto progress = [&](std::int64_t done, std::int64_t all) {
    seen.emplace_back(done, all);
  };
  const EvaluateResult result =
      evaluate(model.scored(), Ids(20, 0), window(4, 2), nullptr, progress);
  EXPECT_EQ(result.windows, 2);
  EXPECT_EQ(model.restarts, 2);
  EXPECT_EQ(model.parts, (std::vector<std::size_t>{4, 4}));
  EXPECT_EQ(
      seen,
      (std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 2}, {2, 2}}));
}

// Logits of a large vocabulary are made in parts; the figures stay the same.
TEST(Evaluate, LargeVocabulariesRunInParts) {
  constexpr std::int64_t kVocabulary = 1 << 22;  // 16 MiB a position
  Cycle model(kVocabulary, 0);
  const EvaluateResult result =
      evaluate(model.scored(), Ids{1, 2, 3, 4, 5}, window(5), nullptr, kQuiet);
  EXPECT_EQ(model.parts, (std::vector<std::size_t>{4, 1}));
  EXPECT_NEAR(result.nll, std::log(kVocabulary), 1e-6);
}

TEST(Evaluate, ComparesWithAReferenceAtEveryPosition) {
  const Cycle model(2, 0);
  const Cycle reference(2, std::log(3.0F));
  const ScoredModel expected = reference.scored();
  const EvaluateResult result =
      evaluate(model.scored(), Ids{0, 1, 0, 0}, window(4), &expected, kQuiet);
  ASSERT_TRUE(result.divergence.has_value());
  const double kl = 0.75 * std::log(1.5) + 0.25 * std::log(0.5);
  EXPECT_NEAR(result.divergence->mean, kl, 1e-6);
  EXPECT_NEAR(result.divergence->median, kl, 1e-6);
  EXPECT_NEAR(result.divergence->p99, kl, 1e-6);
  // The uniform model's most likely token is 0: right after 1 alone.
  EXPECT_DOUBLE_EQ(result.divergence->top1, 0.25);
}

TEST(Evaluate, AModelDoesNotDivergeFromItself) {
  const Cycle model(7, 2);
  const ScoredModel itself = model.scored();
  const EvaluateResult result = evaluate(
      model.scored(), Ids{0, 1, 2, 3, 6, 6}, window(3), &itself, kQuiet);
  EXPECT_EQ(result.divergence->mean, 0);
  EXPECT_EQ(result.divergence->p99, 0);
  EXPECT_EQ(result.divergence->top1, 1);
}

TEST(Evaluate, ImpossibleRequestsAreRefused) {
  Cycle model(4, 0);
  model.max_positions = 8;
  const auto refuses = [&](const char* part,
                           const Ids& ids,
                           const EvaluateOptions& options,
                           const ScoredModel* reference = nullptr) {
    expect_error(ErrorCode::kInvalidArgument, part, [&] {
      static_cast<void>(
          evaluate(model.scored(), ids, options, reference, kQuiet));
    });
    EXPECT_TRUE(model.parts.empty());
  };
  refuses("window: found 1", {0, 1, 2}, window(1));
  refuses("limit: found -1", {0, 1, 2}, window(2, -1));
  refuses(
      "window: found 9, expected at most the model's 8", Ids(20, 0), window(9));
  refuses("tokens: found 3, expected at least one window of 4",
          {0, 1, 2},
          window(4));
  refuses("tokens: found id 4 at 1, expected 0 to 3", {0, 4}, window(2));
  refuses("tokens: found id -1 at 0", {-1, 0}, window(2));
  const Cycle other(5, 0);
  const ScoredModel larger = other.scored();
  refuses("reference: found a vocabulary of 5", {0, 1}, window(2), &larger);
  Cycle close(4, 0);
  close.max_positions = 2;
  const ScoredModel shorter = close.scored();
  refuses("expected at most the model's 2", {0, 1, 2}, window(3), &shorter);
}

}  // namespace
}  // namespace nibble::text
