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
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/base/progress.h"
#include "nibble/cli/common/model_loader.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/container/torch_pickle/reader.h"
#include "nibble/container/torch_pickle/writer.h"
#include "nibble/load/model_running.h"
#include "nibble/quant/formats/gpt_fast/int4_pack.h"
#include "nibble/quant/pipeline/check/verify.h"
#include "nibble/quant/pipeline/inspect.h"
#include "nibble/quant/pipeline/quantize.h"
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

// A copy of gpt-fast's file in a directory with the configuration that it
// needs beside it.
fs::path place(const fs::path& file, const fs::path& directory) {
  const fs::path bundled =
      fs::path(NIBBLE_SOURCE_DIR) / "models" / "fable-dense";
  fs::copy_file(bundled / "config.json", directory / "config.json");
  fs::copy_file(file, directory / file.filename());
  return directory / file.filename();
}

class GptFastLogits : public testing::TestWithParam<std::string> {};

// The reference runs in BF16. Rounding logits of 8 to 16 to its 8 bits alone
// is an error of variance (1/16)^2 / 12, a divergence of half of that: 1.6e-4.
// int8 itself loses 3.4e-4 on this model, int4 a hundred times as much.
TEST_P(GptFastLogits, AreThoseOfGptFast) {
  NIBBLE_REFERENCE_OR_SKIP(file, "golden/gpt-fast/fable-dense/" + GetParam());
  const fs::path reference = file.parent_path() / "reference.safetensors";
  const TemporaryDirectory here;
  const cli::LoadedModel loaded =
      cli::load_for_running(place(file, here.path()));
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

// What the file of a PyTorch without tiles looks like.
struct Layout {
  const char* name;
  bool tile_shape;  // CPU bytes as int32 words in the shape of tiles
};

// The byte and the half of it that hold a code.
std::pair<std::int64_t, bool> byte_of(const std::string& layout,
                                      std::int64_t row,
                                      std::int64_t column,
                                      std::int64_t columns) {
  if (layout == "bytes") {
    return {row * columns / 2 + column / 2, column % 2 == 0};
  }
  const std::int64_t block = layout == "cpu-avx512" ? 64 : 32;
  const std::int64_t half = block / 2;
  return {row / block * block * columns / 2 + column * half + row % half,
          row % block >= half};
}

// The file from, of tiles, with its codes in another order.
void reorder(const fs::path& from, const fs::path& to, const Layout& layout) {
  const auto reader = container::open_torch_file(from);
  std::map<std::string, Tensor> all;
  std::vector<container::TensorInfo> infos;
  for (const container::TensorInfo& tensor : reader->tensors()) {
    Tensor data = reader->load_copy(tensor);
    container::TensorInfo info = tensor;
    if (info.dtype == DType::kI32) {
      const std::int64_t rows = info.shape[0] * 8;
      const std::int64_t columns = info.shape[1] * 128;
      const auto words = std::as_const(data).view().raw<std::uint32_t>();
      Tensor bytes(DType::kU8, {rows, columns / 2});
      const auto out = bytes.view().as<std::uint8_t>();
      std::fill(out.begin(), out.end(), std::uint8_t{0});
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const auto place = quant::gpt_fast::nibble_place(r, c, columns, 8);
          const std::uint32_t code =
              words[static_cast<std::size_t>(place.word)] >> place.shift & 15u;
          const auto [at, high] = byte_of(layout.name, r, c, columns);
          out[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(
              out[static_cast<std::size_t>(at)] | code << (high ? 4 : 0));
        }
      }
      if (!layout.tile_shape) {
        info.dtype = DType::kU8;
        info.shape = bytes.shape();
      }
      data = std::move(bytes);
    }
    all.emplace(info.name, std::move(data));
    infos.push_back(std::move(info));
  }
  container::TorchFileWriter writer(to.parent_path(),
                                    {to.filename().string(), infos});
  for (const auto& [name, data] : all) {
    writer.write(name, 0, data.view().byte_span());
  }
  writer.finish();
}

class GptFastLayout : public testing::TestWithParam<Layout> {};

TEST_P(GptFastLayout, TellsTheOrderOfCodes) {
  NIBBLE_REFERENCE_OR_SKIP(tiles,
                           "golden/gpt-fast/fable-dense/model_int4.g32.pth");
  const TemporaryDirectory here;
  const fs::path file = place(tiles, here.path());
  const fs::path other = here.path() / "model_int4.other.g32.pth";
  reorder(tiles, other, GetParam());
  const Ids ids{1, 2, 3, 4, 5, 6, 7};
  const Tensor expected =
      load::logits_of(*cli::load_for_running(file).model, ids);
  const Tensor found = load::logits_of(
      *cli::load_for_running(other, {.int4_layout = GetParam().name}).model,
      ids);
  EXPECT_EQ(load::largest_difference(expected.view(), found.view()), 0);
  if (!GetParam().tile_shape) {
    expect_error(ErrorCode::kInvalidArgument, "--int4-layout", [&] {
      static_cast<void>(cli::load_for_running(other));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Orders,
                         GptFastLayout,
                         testing::Values(Layout{"bytes", false},
                                         Layout{"cpu-avx512", false},
                                         Layout{"cpu-avx2", false},
                                         Layout{"cpu-avx512", true},
                                         Layout{"cpu-avx2", true}),
                         [](const auto& suite) {
                           std::string name = suite.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name +
                                  (suite.param.tile_shape ? "_tiles" : "");
                         });

TEST(GptFastFile, TakesALayoutOnlyWhereTheFileTellsNone) {
  const fs::path dense = fs::path(NIBBLE_SOURCE_DIR) / "models" / "fable-dense";
  expect_error(ErrorCode::kInvalidArgument, "--int4-layout", [&] {
    static_cast<void>(cli::load_for_running(dense, {.int4_layout = "bytes"}));
  });
  for (const std::string name : {"model_int4.g32.pth", "model_int8.pth"}) {
    NIBBLE_REFERENCE_OR_SKIP(file, "golden/gpt-fast/fable-dense/" + name);
    const TemporaryDirectory here;
    expect_error(ErrorCode::kInvalidArgument, "found no codes", [&] {
      static_cast<void>(cli::load_for_running(place(file, here.path()),
                                              {.int4_layout = "bytes"}));
    });
  }
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
  const quant::InspectReport file = quant::inspect(place(int8, here.path()));
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
