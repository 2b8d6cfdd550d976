// generate and evaluate over a real Transformer: a small random one, whose
// tokens and likelihoods are also computed the plain way, without a cache.

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/text/evaluate.h"
#include "nibble/text/generate.h"
#include "nibble/text/likelihood.h"

namespace nibble::text {
namespace {

using Ids = std::vector<std::int32_t>;
using model::Transformer;

constexpr std::int64_t kVocabulary = 13;
constexpr std::int64_t kPositions = 40;

Tensor random_matrix(std::int64_t rows, std::int64_t cols, Random& random) {
  Tensor matrix(DType::kF32, {rows, cols});
  for (float& value : matrix.view().as<float>()) {
    value = static_cast<float>(random.uniform() * 2 - 1);
  }
  return matrix;
}

class Matrix final : public model::Linear {
 public:
  explicit Matrix(Tensor weight) : weight_(std::move(weight)) {}

  void forward(ConstTensorView x,
               TensorView y,
               backend::Stream& stream) const override {
    backend::cpu_backend().matmul(x, weight_.view(), {}, y, stream);
  }

  std::size_t resident_bytes() const override { return weight_.bytes(); }

  std::string description() const override { return "float32"; }

 private:
  Tensor weight_;  // (out, in)
};

class Table final : public model::Embedding {
 public:
  explicit Table(Tensor table) : table_(std::move(table)) {}

  void forward(std::span<const std::int32_t> ids,
               TensorView y,
               backend::Stream& stream) const override {
    backend::cpu_backend().embed(table_.view(), ids, y, stream);
  }

  std::size_t resident_bytes() const override { return table_.bytes(); }

 private:
  Tensor table_;  // (vocabulary, hidden)
};

Transformer random_model(std::uint64_t seed) {
  model::ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.hidden = 16;
  config.vocabulary = kVocabulary;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 8;
  config.max_positions = kPositions;
  config.eos_tokens = {10};
  config.layers.resize(2);
  for (model::LayerConfig& layer : config.layers) {
    layer.intermediate = 24;
  }
  Transformer transformer(config, backend::cpu_backend());
  Random random(seed);
  transformer.visit_linears([&](model::LinearSlot& slot) {
    slot.layer =
        std::make_unique<Matrix>(random_matrix(slot.out, slot.in, random));
  });
  transformer.visit_norms([&](model::NormSlot& slot) {
    slot.weight = Tensor::from_floats(
        {config.hidden},
        std::vector<float>(static_cast<std::size_t>(config.hidden), 1));
  });
  transformer.embedding().layer = std::make_unique<Table>(
      random_matrix(kVocabulary, config.hidden, random));
  return transformer;
}

std::vector<float> logits_after(const Transformer& model,
                                std::span<const std::int32_t> ids) {
  model::KvCache cache = model.make_cache();
  const Tensor logits = model.forward(ids, cache, Transformer::Logits::kLast);
  const auto values = logits.view().as<float>();
  return {values.begin(), values.end()};
}

const auto kQuiet = [](std::int64_t, std::int64_t) {};

TEST(TransformerLoops, GenerateGivesTheTokensOfPlainGreedySearch) {
  const Transformer model = random_model(5);
  const Tokenizer tokenizer =
      parse_tokenizer(R"({"model": {"vocab": {"a": 0}, "merges": []}})");
  const Ids prompt = {1, 2, 3, 4, 5, 6, 7};
  GenerateOptions options;
  options.max_tokens = 100;
  options.ignore_eos = true;
  options.prompt_chunk = 3;
  const GenerateResult result =
      generate(model, tokenizer, prompt, options, [](std::string_view) {});
  EXPECT_EQ(result.stop_reason, StopReason::kContext);
  // The last token needs no position of its own.
  ASSERT_EQ(result.ids.size(), kPositions - prompt.size() + 1);
  Ids sequence = prompt;
  for (const std::int32_t id : result.ids) {
    ASSERT_EQ(id, most_likely(logits_after(model, sequence)));
    sequence.push_back(id);
  }
}

TEST(TransformerLoops, EvaluateGivesThePlainMeans) {
  const Transformer model = random_model(5);
  const Transformer reference = random_model(6);
  Ids ids(25);
  std::iota(ids.begin(), ids.end(), 0);
  for (std::int32_t& id : ids) {
    id = id * 5 % static_cast<std::int32_t>(kVocabulary);
  }
  EvaluateOptions options;
  options.window = 12;
  const EvaluateResult result =
      evaluate(model, ids, options, &reference, kQuiet);
  double nll = 0;
  double kl = 0;
  double agree = 0;
  for (std::size_t window = 0; window < 2; ++window) {
    for (std::size_t i = 0; i < 12; ++i) {
      const auto seen = std::span(ids).subspan(window * 12, i + 1);
      const std::vector<float> logits = logits_after(model, seen);
      const std::vector<float> expected = logits_after(reference, seen);
      kl += divergence(expected, logits) / 24;
      agree += most_likely(expected) == most_likely(logits) ? 1.0 / 24 : 0;
      if (i < 11) {
        nll += negative_log_likelihood(logits, ids[window * 12 + i + 1]) / 22;
      }
    }
  }
  EXPECT_EQ(result.windows, 2);
  EXPECT_NEAR(result.nll, nll, 1e-5);
  ASSERT_TRUE(result.divergence.has_value());
  EXPECT_NEAR(result.divergence->mean, kl, 1e-5);
  EXPECT_NEAR(result.divergence->top1, agree, 1e-9);
  EXPECT_GT(result.tokens_per_second, 0);

  // Without a reference, the same model gives the same figure.
  const EvaluateResult alone = evaluate(model, ids, options, nullptr, kQuiet);
  EXPECT_EQ(alone.nll, result.nll);
  EXPECT_FALSE(alone.divergence.has_value());
}

}  // namespace
}  // namespace nibble::text
