// Checkpoints that Meta's and gpt-fast's own tools wrote: what they compute
// against the logits of those tools, and what becomes of them by quantizing.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/file.h"
#include "nibble/base/json.h"
#include "nibble/base/progress.h"
#include "nibble/cli/model_loader.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/load/model_running.h"
#include "nibble/quant/pipeline/inspect.h"
#include "nibble/quant/pipeline/quantize.h"
#include "nibble/quant/pipeline/verify.h"
#include "nibble/quant/recipe/recipe.h"
#include "nibble/text/likelihood.h"
#include "reference_data.h"
#include "temporary_directory.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

Tensor named(const fs::path& file, const std::string& name) {
  const auto reader = container::open_safetensors(file);
  return reader->load_copy(reader->get(name));
}

Ids ids_in(const Tensor& tensor) {
  const auto ids = tensor.view().as<std::int32_t>();
  return {ids.begin(), ids.end()};
}

// How far the predictions of a model are from those of a reference.
struct Distance {
  double kl = 0;    // mean, nats
  double top1 = 0;  // share of equal top tokens
};

class Comparison {
 public:
  void add(ConstTensorView reference, ConstTensorView logits) {
    ASSERT_EQ(reference.shape(), logits.shape());
    for (std::int64_t t = 0; t < reference.shape()[0]; ++t) {
      const auto expected = reference.rows(t, 1).as<float>();
      const auto found = logits.rows(t, 1).as<float>();
      kl_ += text::divergence(expected, found);
      same_ += text::most_likely(expected) == text::most_likely(found) ? 1 : 0;
      ++count_;
    }
  }

  [[nodiscard]] Distance result() const {
    return {kl_ / static_cast<double>(count_),
            static_cast<double>(same_) / static_cast<double>(count_)};
  }

 private:
  double kl_ = 0;
  int same_ = 0;
  int count_ = 0;
};

Distance distance(const Tensor& reference, const Tensor& logits) {
  Comparison comparison;
  comparison.add(reference.view(), logits.view());
  return comparison.result();
}

class MetaLogits : public testing::TestWithParam<std::string> {};

TEST_P(MetaLogits, AreThoseOfTransformers) {
  NIBBLE_REFERENCE_OR_SKIP(directory, "golden/meta/" + GetParam());
  const fs::path reference = directory.parent_path() / "reference.safetensors";
  const cli::LoadedModel loaded = cli::load_for_running(directory);
  const Tensor expected = named(reference, "logits");
  const Tensor logits =
      load::logits_of(*loaded.model, ids_in(named(reference, "ids")));
  EXPECT_LE(load::largest_difference(expected.view(), logits.view()), 2e-3F);
}

INSTANTIATE_TEST_SUITE_P(Golden,
                         MetaLogits,
                         testing::Values("scout-mini/bf16-mp1",
                                         "scout-mini/bf16-mp8",
                                         "maverick-mini/bf16-mp1",
                                         "maverick-mini/bf16-mp8"),
                         [](const auto& suite) {
                           std::string name = suite.param;
                           std::replace(name.begin(), name.end(), '/', '_');
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A packed directory, and the most that its predictions may lose.
struct Packed {
  const char* directory;
  double kl;  // mean, nats
};

class MetaPacked : public testing::TestWithParam<Packed> {};

// The limits are one and a half of what these formats lose on this data.
// Scales that two of the eight ranks exchange double the loss.
TEST_P(MetaPacked, PredictsAlmostAsTheSourceDoes) {
  const std::string name = GetParam().directory;
  NIBBLE_REFERENCE_OR_SKIP(directory, "golden/meta/" + name);
  const fs::path reference = directory.parent_path() / "reference.safetensors";
  const cli::LoadedModel loaded = cli::load_for_running(directory);
  ASSERT_NE(loaded.quantized, nullptr);
  const Distance found =
      distance(named(reference, "logits"),
               load::logits_of(*loaded.model, ids_in(named(reference, "ids"))));
  RecordProperty("kl", std::to_string(found.kl));
  EXPECT_LE(found.kl, GetParam().kl) << "top-1 " << found.top1;
  EXPECT_GT(found.kl, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Golden,
    MetaPacked,
    testing::Values(Packed{"scout-mini/int4_330-mp8", 0.032},
                    Packed{"scout-mini/fp8-mp8", 7.5e-5},
                    Packed{"maverick-mini/int4_330-mp8", 0.013},
                    Packed{"maverick-mini/int4_main-mp8", 1e-3}),
    [](const auto& suite) {
      std::string name = suite.param.directory;
      std::replace(name.begin(), name.end(), '/', '_');
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// gpt-fast's file, which needs a configuration beside it.
class GptFastLogits : public testing::TestWithParam<std::string> {
 protected:
  // The path of the file beside the bundled model's config.json.
  [[nodiscard]] fs::path place(const fs::path& file) const {
    const fs::path bundled =
        fs::path(NIBBLE_SOURCE_DIR) / "models" / "fable-dense";
    fs::copy_file(bundled / "config.json", here_.path() / "config.json");
    fs::copy_file(file, here_.path() / file.filename());
    return here_.path() / file.filename();
  }

  TemporaryDirectory here_;
};

// The reference runs in BF16. Rounding logits of 8 to 16 to its 8 bits alone
// is an error of variance (1/16)^2 / 12, a divergence of half of that: 1.6e-4.
// int8 itself loses 3.4e-4 on this model, int4 a hundred times as much.
TEST_P(GptFastLogits, AreThoseOfGptFast) {
  NIBBLE_REFERENCE_OR_SKIP(file, "golden/gpt-fast/fable-dense/" + GetParam());
  const fs::path reference = file.parent_path() / "reference.safetensors";
  const cli::LoadedModel loaded = cli::load_for_running(place(file));
  const nlohmann::json prompts =
      read_json_object(fs::path(NIBBLE_SOURCE_DIR) / "tests/data" /
                       "fable-dense-reference.json")["prompts"];
  Comparison comparison;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Tensor expected =
        named(reference, GetParam() + ".logits." + std::to_string(i));
    const Tensor logits =
        load::logits_of(*loaded.model, prompts[i]["ids"].get<Ids>());
    comparison.add(expected.view(), logits.view());
  }
  const Distance found = comparison.result();
  RecordProperty("kl", std::to_string(found.kl));
  RecordProperty("top1", std::to_string(found.top1));
  EXPECT_LE(found.kl, 3e-4);
  EXPECT_GE(found.top1, 0.95);
}

INSTANTIATE_TEST_SUITE_P(Golden,
                         GptFastLogits,
                         testing::Values("model.pth",
                                         "model_int8.pth",
                                         "model_int4.g32.pth",
                                         "model_int4.g128.pth"),
                         [](const auto& suite) {
                           std::string name = suite.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(GptFastFile, TakesALayoutOnlyWhereThereAreCodes) {
  const fs::path dense = fs::path(NIBBLE_SOURCE_DIR) / "models" / "fable-dense";
  expect_error(ErrorCode::kInvalidArgument, "--int4-layout", [&] {
    static_cast<void>(cli::load_for_running(dense, {.int4_layout = "bytes"}));
  });
}

TEST(NativeCheckpoint, HasNoReceiptToBeVerifiedAgainst) {
  NIBBLE_REFERENCE_OR_SKIP(directory, "golden/meta/scout-mini/int4_330-mp8");
  ProgressSink& progress = null_progress();
  expect_error(ErrorCode::kNotFound, "found no receipt", [&] {
    static_cast<void>(quant::verify(directory, std::nullopt, progress));
  });
}

TEST(NativeCheckpoint, IsInspectedAsTheModelThatItIs) {
  NIBBLE_REFERENCE_OR_SKIP(shards, "golden/meta/scout-mini/bf16-mp8");
  NIBBLE_REFERENCE_OR_SKIP(hf, "golden/meta/scout-mini/hf");
  const quant::InspectReport found = quant::inspect(shards);
  const quant::InspectReport expected = quant::inspect(hf);
  EXPECT_EQ(found.family, expected.family);
  EXPECT_EQ(found.format, "dense");
  EXPECT_EQ(found.parameters, expected.parameters);
  EXPECT_EQ(found.active_parameters, expected.active_parameters);
  EXPECT_EQ(found.files.size(), 8U);
  NIBBLE_REFERENCE_OR_SKIP(int8, "golden/gpt-fast/fable-dense/model_int8.pth");
  const TemporaryDirectory here;
  fs::copy_file(fs::path(NIBBLE_SOURCE_DIR) / "models/fable-dense/config.json",
                here.path() / "config.json");
  fs::copy_file(int8, here.path() / "model_int8.pth");
  const quant::InspectReport file =
      quant::inspect(here.path() / "model_int8.pth");
  EXPECT_EQ(file.family, "llama");
  EXPECT_EQ(file.format, "gpt-fast int8");
}

// Checkpoints by tensor name, for comparing all bytes.
std::map<std::string, std::vector<std::byte>> contents(const fs::path& path) {
  std::map<std::string, std::vector<std::byte>> all;
  const auto reader = container::open_safetensors(path);
  for (const auto& tensor : reader->tensors()) {
    const Tensor copy = reader->load_copy(tensor);
    const auto bytes = copy.view().byte_span();
    all[tensor.name].assign(bytes.begin(), bytes.end());
  }
  return all;
}

TEST(NativeCheckpoint, QuantizesToTheBytesThatItsHuggingFaceFormDoes) {
  NIBBLE_REFERENCE_OR_SKIP(shards, "golden/meta/scout-mini/bf16-mp8");
  NIBBLE_REFERENCE_OR_SKIP(hf, "golden/meta/scout-mini/hf");
  const quant::Recipe recipe =
      quant::load_recipe(R"({"version": 1, "rules": [)"
                         R"({"match": "*", "scheme": "int4", "group": 64}]})");
  const TemporaryDirectory here;
  ProgressSink& progress = null_progress();
  const std::atomic<bool> stop = false;
  const auto quantized = [&](const fs::path& source, const char* name) {
    quant::QuantizeOptions options;
    options.output = here.path() / name;
    static_cast<void>(quant::quantize(
        load::open_checkpoint(source), recipe, options, progress, stop));
    return options.output;
  };
  const fs::path from_shards = quantized(shards, "shards");
  const fs::path from_hf = quantized(hf, "hf");
  EXPECT_EQ(contents(from_shards), contents(from_hf));
  EXPECT_TRUE(fs::exists(from_shards / "config.json"));
  EXPECT_TRUE(fs::exists(from_shards / "params.json"));
  EXPECT_TRUE(quant::verify(from_shards, shards, progress).ok);
  // And it is a model by itself.
  const fs::path reference = shards.parent_path() / "reference.safetensors";
  const Ids ids = ids_in(named(reference, "ids"));
  EXPECT_EQ(
      load::largest_difference(
          load::logits_of(*cli::load_for_running(from_shards).model, ids)
              .view(),
          load::logits_of(*cli::load_for_running(from_hf).model, ids).view()),
      0);
}

}  // namespace
}  // namespace nibble
