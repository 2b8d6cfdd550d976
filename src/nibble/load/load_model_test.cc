#include "nibble/load/load_model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/container/safetensors/writer.h"
#include "nibble/load/dense_builder.h"
#include "nibble/load/model_running.h"
#include "nibble/load/plain_forward.h"
#include "nibble/load/tiny_checkpoint.h"
#include "temporary_directory.h"

namespace nibble::load {
namespace {

using nlohmann::json;

using Ids = std::vector<std::int32_t>;

std::unique_ptr<model::Transformer> load_from(
    const std::filesystem::path& directory) {
  return load_model(open_checkpoint(directory), {}, backend::cpu_backend());
}

std::unique_ptr<model::Transformer> load_tiny(const TinyCheckpoint& tiny,
                                              DType dtype = DType::kBF16,
                                              std::size_t per_file = 0) {
  const TemporaryDirectory directory;
  tiny.write(directory.path(), dtype, per_file);
  return load_from(directory.path());
}

Ids some_ids(std::size_t count) {
  Ids ids(count);
  std::int32_t id = 3;
  for (std::int32_t& value : ids) {
    value = id;
    id = (id * 7 + 11) % 50;
  }
  return ids;
}

std::vector<float> logits_in(const model::Transformer& model, const Ids& ids) {
  const Tensor logits = logits_of(model, ids);
  const auto floats = logits.view().as<float>();
  return {floats.begin(), floats.end()};
}

// The logits as the mathematics gives them; returns how far apart they are.
void expect_plain_logits(TinyCheckpoint& tiny, std::size_t tokens) {
  const Ids ids = some_ids(tokens);
  const auto expected = PlainModel(tiny).forward(ids);
  const auto found = logits_in(*load_tiny(tiny), ids);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t i = 0; i < 50; ++i) {
      ASSERT_NEAR(found[t * 50 + i], expected[t][i], 2e-4)
          << "token " << t << " logit " << i;
    }
  }
}

// ---- What is computed -------------------------------------------------------

TEST(LoadModel, LlamaComputesWhatItsMathematicsSays) {
  TinyCheckpoint tiny(tiny_llama());
  expect_plain_logits(tiny, 30);
}

TEST(LoadModel, LlamaWithBiasesAndTiedHeadComputesWhatItsMathematicsSays) {
  json config = tiny_llama();
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  config["tie_word_embeddings"] = true;
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  TinyCheckpoint tiny(config);
  expect_plain_logits(tiny, 30);
}

TEST(LoadModel, Llama4ComputesWhatItsMathematicsSays) {
  TinyCheckpoint tiny(tiny_llama4());
  expect_plain_logits(tiny, 40);
}

TEST(LoadModel, Llama4WithAttentionBiasAndNoQkNormDoesSo) {
  json config = tiny_llama4();
  config["attention_bias"] = true;
  config["use_qk_norm"] = false;
  config["attn_temperature_tuning"] = false;
  config["moe_layers"] = {0};
  TinyCheckpoint tiny(config);
  expect_plain_logits(tiny, 25);
}

TEST(LoadModel, TheTypeOfStorageDoesNotChangeEqualWeights) {
  for (const json& config : {tiny_llama(), tiny_llama4()}) {
    const TinyCheckpoint tiny(config);
    const Ids ids = some_ids(20);
    const auto bf16 = logits_in(*load_tiny(tiny, DType::kBF16), ids);
    EXPECT_EQ(bf16, logits_in(*load_tiny(tiny, DType::kF16), ids));
    EXPECT_EQ(bf16, logits_in(*load_tiny(tiny, DType::kF32), ids));
  }
}

TEST(LoadModel, ShardsMakeNoDifference) {
  const TinyCheckpoint tiny(tiny_llama4());
  const Ids ids = some_ids(20);
  EXPECT_EQ(logits_in(*load_tiny(tiny), ids),
            logits_in(*load_tiny(tiny, DType::kBF16, 5), ids));
}

TEST(LoadModel, StackedAndSeparateExpertsAreTheSame) {
  TinyCheckpoint tiny(tiny_llama4());
  const Ids ids = some_ids(20);
  const auto stacked = logits_in(*load_tiny(tiny), ids);
  for (const std::string layer : {"1", "3"}) {
    const std::string experts =
        "model.layers." + layer + ".feed_forward.experts.";
    const auto move_part = [&](const std::string& stack,
                               const std::string& projection,
                               std::int64_t first,
                               std::int64_t columns) {
      const TinyCheckpoint::Weight& from = tiny.at(experts + stack);
      const std::int64_t in = from.shape[1];
      for (std::int64_t e = 0; e < from.shape[0]; ++e) {
        TinyCheckpoint::Weight part{{columns, in}, {}};
        for (std::int64_t o = 0; o < columns; ++o) {
          for (std::int64_t i = 0; i < in; ++i) {
            part.values.push_back(from.values[static_cast<std::size_t>(
                (e * in + i) * from.shape[2] + first + o)]);
          }
        }
        tiny.tensors()[experts + std::to_string(e) + "." + projection +
                       ".weight"] = part;
      }
    };
    move_part("gate_up_proj", "gate_proj", 0, 16);
    move_part("gate_up_proj", "up_proj", 16, 16);
    move_part("down_proj", "down_proj", 0, 24);
    tiny.tensors().erase(experts + "gate_up_proj");
    tiny.tensors().erase(experts + "down_proj");
  }
  EXPECT_EQ(stacked, logits_in(*load_tiny(tiny), ids));
}

TEST(LoadModel, TheTextPartOfAMultimodalCheckpointIsTheModel) {
  TinyCheckpoint tiny(tiny_llama4());
  const Ids ids = some_ids(20);
  const auto alone = logits_in(*load_tiny(tiny), ids);
  auto tensors = std::exchange(tiny.tensors(), {});
  for (auto& [name, weight] : tensors) {
    tiny.tensors()["language_model." + name] = std::move(weight);
  }
  tiny.add("vision_model.patch_embedding.linear.weight", {4, 6});
  tiny.add("multi_modal_projector.linear_1.weight", {24, 4});
  json text = tiny.config();
  text["architectures"] = nullptr;
  tiny.config() = {{"architectures", {"Llama4ForConditionalGeneration"}},
                   {"text_config", text}};
  EXPECT_EQ(alone, logits_in(*load_tiny(tiny), ids));
}

TEST(LoadModel, BuffersAndACopyOfATiedTableAreIgnored) {
  json config = tiny_llama();
  config["tie_word_embeddings"] = true;
  TinyCheckpoint tiny(config);
  const Ids ids = some_ids(10);
  const auto before = logits_in(*load_tiny(tiny), ids);
  tiny.add("lm_head.weight", {50, 24});
  tiny.add("model.layers.0.self_attn.rotary_emb.inv_freq", {4});
  EXPECT_EQ(before, logits_in(*load_tiny(tiny), ids));
}

TEST(LoadModel, WeightsStayAsTheyAreStored) {
  TinyCheckpoint tiny(tiny_llama4());
  const auto model = load_tiny(tiny);
  std::size_t elements = 0;
  std::size_t norms = 0;
  for (const auto& [name, weight] : tiny.tensors()) {
    (name.find("norm") != std::string::npos ? norms : elements) +=
        weight.values.size();
  }
  EXPECT_EQ(model->resident_bytes(), 2 * elements + 4 * norms);
  model->visit_linears([](model::LinearSlot& slot) {
    EXPECT_EQ(slot.layer->description(), "bf16") << slot.path;
  });
}

TEST(LoadModel, ATiedTableCountsOnce) {
  json config = tiny_llama();
  const std::size_t untied =
      load_tiny(TinyCheckpoint(config))->resident_bytes();
  config["tie_word_embeddings"] = true;
  EXPECT_EQ(load_tiny(TinyCheckpoint(config))->resident_bytes(),
            untied - 50 * 24 * 2);
}

// ---- The cache --------------------------------------------------------------

TEST(Forward, TokenByTokenGivesTheSameAsAllAtOnce) {
  for (const json& config : {tiny_llama(), tiny_llama4()}) {
    const auto model = load_tiny(TinyCheckpoint(config));
    const Ids ids = some_ids(70);
    const Tensor whole = logits_of(*model, ids);
    model::KvCache cache = model->make_cache();
    for (std::size_t t = 0; t < ids.size(); ++t) {
      const Tensor one = model->forward(std::span(ids).subspan(t, 1),
                                        cache,
                                        model::Transformer::Logits::kLast);
      EXPECT_EQ(
          largest_difference(
              one.view(), whole.view().rows(static_cast<std::int64_t>(t), 1)),
          0);
    }
    EXPECT_EQ(cache.length(), 70);
  }
}

TEST(Forward, APromptInPiecesGivesTheSameAsWhole) {
  for (const json& config : {tiny_llama(), tiny_llama4()}) {
    const auto model = load_tiny(TinyCheckpoint(config));
    // More than pass through the blocks at once.
    const Ids ids = some_ids(1050);
    const Tensor whole = logits_of(*model, ids);
    model::KvCache cache = model->make_cache();
    std::size_t begin = 0;
    for (const std::size_t count : {1, 7, 300, 600, 142}) {
      const Tensor piece = model->forward(std::span(ids).subspan(begin, count),
                                          cache,
                                          model::Transformer::Logits::kAll);
      EXPECT_EQ(largest_difference(
                    piece.view(),
                    whole.view().rows(static_cast<std::int64_t>(begin),
                                      static_cast<std::int64_t>(count))),
                0);
      begin += count;
    }
    EXPECT_EQ(begin, ids.size());
  }
}

TEST(Forward, TheLastRowIsThatOfAllRows) {
  const auto model = load_tiny(TinyCheckpoint(tiny_llama()));
  const Ids ids = some_ids(600);
  const Tensor whole = logits_of(*model, ids);
  model::KvCache cache = model->make_cache();
  const Tensor last =
      model->forward(ids, cache, model::Transformer::Logits::kLast);
  EXPECT_EQ(last.shape(), (Shape{1, 50}));
  EXPECT_EQ(largest_difference(last.view(), whole.view().rows(599, 1)), 0);
}

TEST(Forward, ATruncatedCacheContinuesFromThere) {
  const auto model = load_tiny(TinyCheckpoint(tiny_llama4()));
  const Ids ids = some_ids(30);
  model::KvCache cache = model->make_cache();
  const auto run = [&](std::size_t begin) {
    return model->forward(std::span(ids).subspan(begin),
                          cache,
                          model::Transformer::Logits::kLast);
  };
  const Tensor first = run(0);
  cache.truncate(12);
  const Tensor again = run(12);
  EXPECT_EQ(largest_difference(first.view(), again.view()), 0);
  expect_error(ErrorCode::kInvalidArgument, "found a length of 31", [&] {
    cache.truncate(31);
  });
}

TEST(Forward, RefusesBadIdsAndLeavesTheCacheAlone) {
  const auto model = load_tiny(TinyCheckpoint(tiny_llama()));
  model::KvCache cache = model->make_cache();
  const auto run = [&](const Ids& ids) {
    return model->forward(ids, cache, model::Transformer::Logits::kLast);
  };
  (void)run({1, 2, 3});
  const ErrorCode wrong = ErrorCode::kInvalidArgument;
  expect_error(wrong, "token ids: found none", [&] { (void)run({}); });
  expect_error(wrong, "token id: found 50, expected 0 to 49", [&] {
    (void)run({1, 50});
  });
  expect_error(wrong, "token id: found -1", [&] { (void)run({-1}); });
  expect_error(wrong,
               "context: found 1101 positions, expected at most the 1100",
               [&] { (void)run(some_ids(1098)); });
  EXPECT_EQ(cache.length(), 3);
  (void)run(some_ids(1097));
  EXPECT_EQ(cache.length(), 1100);
}

// ---- Refusals ---------------------------------------------------------------

template <typename Change>
void expect_refusal(const json& config,
                    ErrorCode code,
                    const std::string& message,
                    Change&& change) {
  SCOPED_TRACE(message);
  TinyCheckpoint tiny(config);
  change(tiny);
  expect_error(code, message, [&] { (void)load_tiny(tiny); });
}

TEST(LoadModel, NamesAMissingTensor) {
  for (const std::string name : {"model.embed_tokens.weight",
                                 "model.norm.weight",
                                 "model.layers.1.mlp.up_proj.weight",
                                 "model.layers.0.input_layernorm.weight"}) {
    expect_refusal(tiny_llama(), ErrorCode::kNotFound, name, [&](auto& tiny) {
      tiny.tensors().erase(name);
    });
  }
  expect_refusal(
      tiny_llama4(),
      ErrorCode::kNotFound,
      "model.layers.3.feed_forward.experts.0.down_proj.weight",
      [](auto& tiny) {
        tiny.tensors().erase("model.layers.3.feed_forward.experts.down_proj");
      });
}

TEST(LoadModel, AMissingHeadSuggestsTying) {
  expect_refusal(tiny_llama(),
                 ErrorCode::kNotFound,
                 "tie_word_embeddings",
                 [](auto& tiny) { tiny.tensors().erase("lm_head.weight"); });
}

TEST(LoadModel, NamesAMissingBias) {
  json config = tiny_llama();
  config["attention_bias"] = true;
  expect_refusal(config,
                 ErrorCode::kNotFound,
                 "model.layers.0.self_attn.o_proj.bias",
                 [](auto& tiny) {
                   tiny.tensors().erase("model.layers.0.self_attn.o_proj.bias");
                 });
}

TEST(LoadModel, RefusesShapesThatConfigContradicts) {
  const auto reshape = [](const std::string& name, const Shape& shape) {
    return [=](TinyCheckpoint& tiny) { tiny.add(name, shape); };
  };
  const ErrorCode corrupt = ErrorCode::kCorruptData;
  expect_refusal(tiny_llama(),
                 corrupt,
                 "model.layers.0.self_attn.k_proj.weight: found shape "
                 "(32, 24), expected (16, 24)",
                 reshape("model.layers.0.self_attn.k_proj.weight", {32, 24}));
  expect_refusal(tiny_llama(),
                 corrupt,
                 "model.norm.weight: found shape (25), expected (24)",
                 reshape("model.norm.weight", {25}));
  expect_refusal(tiny_llama(),
                 corrupt,
                 "model.embed_tokens.weight: found shape (51, 24)",
                 reshape("model.embed_tokens.weight", {51, 24}));
  expect_refusal(
      tiny_llama4(),
      corrupt,
      "model.layers.1.feed_forward.experts.gate_up_proj: found shape "
      "(3, 32, 24), expected (3, 24, 32)",
      reshape("model.layers.1.feed_forward.experts.gate_up_proj", {3, 32, 24}));
}

TEST(LoadModel, RefusesTensorsThatNothingUses) {
  const ErrorCode corrupt = ErrorCode::kCorruptData;
  expect_refusal(tiny_llama(),
                 corrupt,
                 "model.layers.2.mlp.up_proj.weight: found a tensor that "
                 "nothing in a LlamaForCausalLM of 2 layers uses",
                 [](auto& tiny) {
                   tiny.add("model.layers.2.mlp.up_proj.weight", {40, 24});
                 });
  expect_refusal(tiny_llama(),
                 corrupt,
                 "model.layers.0.self_attn.k_proj.bias",
                 [](auto& tiny) {
                   tiny.add("model.layers.0.self_attn.q_proj.bias", {32});
                   tiny.add("model.layers.0.self_attn.k_proj.bias", {16});
                 });
}

TEST(LoadModel, RefusesNormsAndBiasesThatAreNotFinite) {
  expect_refusal(
      tiny_llama(),
      ErrorCode::kCorruptData,
      "model.norm.weight: found nan at position 5",
      [](auto& tiny) { tiny.at("model.norm.weight").values[5] = NAN; });
  json config = tiny_llama();
  config["mlp_bias"] = true;
  expect_refusal(config,
                 ErrorCode::kCorruptData,
                 "model.layers.1.mlp.gate_proj.bias: found -inf at position 0",
                 [](auto& tiny) {
                   tiny.at("model.layers.1.mlp.gate_proj.bias").values[0] =
                       -INFINITY;
                 });
}

TEST(LoadModel, RefusesElementsThatAreNoWeights) {
  TinyCheckpoint tiny(tiny_llama());
  const TemporaryDirectory directory;
  tiny.write(directory.path());
  std::vector<std::pair<std::string, Tensor>> stored;
  const auto reader = open_checkpoint(directory.path());
  std::vector<container::NamedTensor> named;
  for (const auto& info : reader.reader->tensors()) {
    stored.emplace_back(info.name,
                        info.name == "model.layers.0.mlp.up_proj.weight"
                            ? Tensor::zeros(DType::kI8, info.shape)
                            : reader.reader->load_copy(info));
  }
  for (const auto& [name, tensor] : stored) {
    named.push_back({name, tensor.view()});
  }
  container::write_safetensors(directory.path() / "model.safetensors", named);
  expect_error(ErrorCode::kUnsupported,
               "model.layers.0.mlp.up_proj.weight: found I8, expected F32, F16 "
               "or BF16",
               [&] { (void)load_from(directory.path()); });
}

// ---- Builders from outside --------------------------------------------------

class ZeroLinear final : public model::Linear {
 public:
  void forward(ConstTensorView /*x*/,
               TensorView y,
               backend::Stream& /*stream*/) const override {
    std::fill(y.as<float>().begin(), y.as<float>().end(), 0.0F);
  }

  [[nodiscard]] std::size_t resident_bytes() const override { return 0; }

  [[nodiscard]] std::string description() const override { return "zero"; }
};

// Claims every down projection, whose tensor is "MODULE.elsewhere".
class ZeroBuilder final : public LayerBuilder {
 public:
  [[nodiscard]] bool claims(const container::CheckpointReader& /*reader*/,
                            const model::LinearSlot& slot) const override {
    return slot.path.ends_with("down_proj");
  }

  [[nodiscard]] std::unique_ptr<model::Linear> build(
      const container::CheckpointReader& /*reader*/,
      const model::LinearSlot& /*slot*/,
      backend::Backend& /*backend*/) const override {
    return std::make_unique<ZeroLinear>();
  }

  [[nodiscard]] std::vector<std::string> tensors_of(
      const container::CheckpointReader& /*reader*/,
      const std::string& module) const override {
    return module.ends_with("down_proj")
               ? std::vector<std::string>{module + ".elsewhere"}
               : std::vector<std::string>{};
  }
};

TEST(LoadModel, BuildersFromOutsideFillTheSlotsTheyClaim) {
  TinyCheckpoint tiny(tiny_llama());
  for (const std::string layer : {"0", "1"}) {
    const std::string module = "model.layers." + layer + ".mlp.down_proj";
    tiny.tensors().erase(module + ".weight");
    tiny.add(module + ".elsewhere", {3});
  }
  const TemporaryDirectory directory;
  tiny.write(directory.path());
  const ZeroBuilder builder;
  const LayerBuilder* builders[] = {&builder};
  const auto model = load_model(
      open_checkpoint(directory.path()), builders, backend::cpu_backend());
  model->visit_linears([](model::LinearSlot& slot) {
    EXPECT_EQ(slot.layer->description() == "zero",
              slot.path.ends_with("down_proj"));
  });
  EXPECT_TRUE(std::isfinite(logits_in(*model, {1, 2}).back()));
}

TEST(Slots, HaveTheNamesOfTheCheckpoint) {
  const auto model = load_tiny(TinyCheckpoint(tiny_llama4()));
  std::vector<std::string> paths;
  model->visit_linears(
      [&](model::LinearSlot& slot) { paths.push_back(slot.path); });
  for (const char* expected :
       {"model.layers.0.self_attn.q_proj",
        "model.layers.0.feed_forward.gate_proj",
        "model.layers.1.feed_forward.router",
        "model.layers.1.feed_forward.shared_expert.up_proj",
        "model.layers.3.feed_forward.experts.2.down_proj",
        "lm_head"}) {
    EXPECT_EQ(std::count(paths.begin(), paths.end(), expected), 1) << expected;
  }
  // 4 attentions, 2 dense MLPs, 2 times router, 3 experts and the shared one.
  EXPECT_EQ(paths.size(), 16U + 6U + 2U * (1 + 9 + 3) + 1U);
}

}  // namespace
}  // namespace nibble::load
