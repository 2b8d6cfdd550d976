// Checkpoints in other layouts: what goes there and back again is the same, and
// what cannot go is refused.

#include "nibble/quant/pipeline/convert.h"

#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/base/progress.h"
#include "nibble/cli/common/model_loader.h"
#include "nibble/load/model_running.h"
#include "nibble/load/native/native_form.h"
#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/quant/pipeline/check/verify.h"
#include "nibble/quant/pipeline/inspect.h"
#include "nibble/quant/pipeline/plan/native_recipe.h"
#include "reference_data.h"
#include "temporary_directory.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using quant::Conversion;
using quant::Layout;

fs::path bundled(const std::string& name) {
  return fs::path(NIBBLE_SOURCE_DIR) / "models" / name;
}

class Convert : public testing::Test {
 protected:
  quant::ConvertReport convert(const fs::path& source,
                               const Conversion& conversion,
                               const std::string& name) const {
    quant::QuantizeOptions options;
    options.output = at(name);
    const std::atomic<bool> stop = false;
    return quant::convert(load::open_checkpoint(source),
                          conversion,
                          options,
                          null_progress(),
                          stop);
  }

  fs::path converted(const fs::path& source,
                     const Conversion& conversion,
                     const std::string& name) const {
    EXPECT_TRUE(convert(source, conversion, name).exact) << name;
    EXPECT_EQ(problems_of(at(name), source), std::vector<std::string>())
        << name;
    return at(name);
  }

  // A quantized version of a model.
  fs::path quantized(const fs::path& model,
                     const quant::Recipe& recipe,
                     const std::string& name) const {
    quant::QuantizeOptions options;
    options.output = at(name);
    const std::atomic<bool> stop = false;
    static_cast<void>(quant::quantize(
        load::open_checkpoint(model), recipe, options, null_progress(), stop));
    return options.output;
  }

  // fable-moe in Meta's layout by one of its schemes.
  fs::path mixed(const std::string& scheme,
                 std::int64_t ranks,
                 const std::string& name) const {
    load::CheckpointDirectory source =
        load::open_checkpoint(bundled("fable-moe"));
    const quant::Recipe recipe = quant::native_recipe(
        load::NativeLayout::kMeta, scheme, 0, *source.config);
    source =
        load::as_native(std::move(source), load::NativeLayout::kMeta, ranks);
    quant::QuantizeOptions options;
    options.output = at(name);
    options.format = "meta";
    const std::atomic<bool> stop = false;
    static_cast<void>(
        quant::quantize(source, recipe, options, null_progress(), stop));
    return options.output;
  }

  fs::path gpt_fast(const std::string& scheme, const std::string& name) const {
    load::CheckpointDirectory source =
        load::open_checkpoint(bundled("fable-dense"));
    const quant::Recipe recipe = quant::native_recipe(
        load::NativeLayout::kGptFast, scheme, 0, *source.config);
    source =
        load::as_native(std::move(source), load::NativeLayout::kGptFast, 1);
    quant::QuantizeOptions options;
    options.output = at(name);
    options.format = "gpt_fast";
    const std::atomic<bool> stop = false;
    static_cast<void>(
        quant::quantize(source, recipe, options, null_progress(), stop));
    return options.output;
  }

  [[nodiscard]] fs::path at(const std::string& name) const {
    return here_.path() / name;
  }

  static std::vector<std::string> problems_of(const fs::path& directory,
                                              const fs::path& source) {
    return quant::verify(directory, source, null_progress()).problems;
  }

  TemporaryDirectory here_;
};

using Contents = std::map<std::string, std::vector<std::byte>>;

// The tensors of a directory in Hugging Face's form, or of its files.
Contents contents(const fs::path& path, bool of_files = false) {
  const load::CheckpointDirectory directory = load::open_checkpoint(path);
  const container::CheckpointReader& reader =
      of_files ? *directory.raw : *directory.reader;
  Contents all;
  for (const auto& tensor : reader.tensors()) {
    const Tensor copy = reader.load_copy(tensor);
    const auto bytes = copy.view().byte_span();
    all[tensor.name].assign(bytes.begin(), bytes.end());
  }
  return all;
}

Tensor logits(const fs::path& directory) {
  const std::vector<std::int32_t> ids{5, 17, 300, 41, 7, 500, 12};
  return load::logits_of(*cli::load_for_running(directory).model, ids);
}

float difference(const fs::path& a, const fs::path& b) {
  const Tensor of_a = logits(a);
  const Tensor of_b = logits(b);
  return load::largest_difference(of_a.view(), of_b.view());
}

const Conversion kToHf{.to = Layout::kHuggingFace};

Conversion to_meta(std::int64_t ranks) {
  return {.to = Layout::kMeta, .ranks = ranks};
}

class Ranks : public Convert,
              public testing::WithParamInterface<std::int64_t> {};

TEST_P(Ranks, GoThereAndBackWithEveryByteAndTheSameLogits) {
  const fs::path source = bundled("fable-moe");
  const fs::path shards = converted(source, to_meta(GetParam()), "shards");
  const fs::path back = converted(shards, kToHf, "back");
  EXPECT_TRUE(contents(back) == contents(source));
  EXPECT_EQ(difference(shards, source), 0);
}

// Cut from other shards, the files are those cut from the whole.
TEST_P(Ranks, AreTheSameFromOtherRanks) {
  const fs::path source = bundled("fable-moe");
  const fs::path direct = converted(source, to_meta(GetParam()), "direct");
  const fs::path eight = converted(source, to_meta(8), "eight");
  const fs::path again = converted(eight, to_meta(GetParam()), "again");
  EXPECT_TRUE(contents(again, true) == contents(direct, true));
}

INSTANTIATE_TEST_SUITE_P(Meta, Ranks, testing::Values(1, 2, 4, 8));

TEST_F(Convert, GptFastGoesThereAndBack) {
  const fs::path source = bundled("fable-dense");
  const fs::path file = converted(source, {.to = Layout::kGptFast}, "gpt-fast");
  EXPECT_TRUE(fs::exists(file / "model.pth"));
  EXPECT_EQ(difference(file, source), 0);
  const fs::path meta = converted(file, to_meta(4), "meta");
  const fs::path back = converted(meta, kToHf, "back");
  EXPECT_TRUE(contents(back) == contents(source));
}

TEST_F(Convert, IsTheFileOfGptFastsOwnConverter) {
  NIBBLE_REFERENCE_OR_SKIP(golden, "golden/gpt-fast/fable-dense/model.pth");
  const fs::path file =
      converted(bundled("fable-dense"), {.to = Layout::kGptFast}, "gpt-fast");
  const fs::path beside = at("golden");
  fs::create_directories(beside);
  fs::copy_file(file / "config.json", beside / "config.json");
  fs::copy_file(golden, beside / "model.pth");
  EXPECT_TRUE(contents(file, true) == contents(beside, true));
}

// INT4 has the same codes and scales whatever the number of ranks.
TEST_F(Convert, Int4IsCutAndJoinedBitForBit) {
  const fs::path eight = mixed("int4_mixed", 8, "eight");
  for (const std::int64_t ranks : {1, 2, 4}) {
    const std::string name = std::to_string(ranks);
    const fs::path other = converted(eight, to_meta(ranks), "to" + name);
    EXPECT_EQ(difference(other, eight), 0) << ranks;
    const fs::path back = converted(other, to_meta(8), "back" + name);
    EXPECT_TRUE(contents(back, true) == contents(eight, true)) << ranks;
  }
  // A group that does not fit into a rank becomes several of the same scale:
  // sums of floats are rounded in other places.
  const fs::path one = mixed("int4_mixed", 1, "one");
  EXPECT_LE(difference(converted(one, to_meta(8), "one8"), one), 2e-3F);
}

// The scales of ranks stay beside each other when they are joined.
TEST_F(Convert, TellsTheSizesOfTheFilesAndTheBitsOfTheWeights) {
  const fs::path two = mixed("int4_mixed", 2, "two");
  const quant::InspectReport held = quant::inspect(two);
  for (const Conversion& conversion : {to_meta(1), kToHf}) {
    const std::string name = conversion.to == Layout::kMeta ? "one" : "hf";
    const quant::QuantizeReport report = convert(two, conversion, name).written;
    EXPECT_EQ(report.source_bytes, held.bytes) << name;
    EXPECT_NEAR(
        report.bits_per_weight, quant::inspect(at(name)).bits_per_weight, 1e-9)
        << name;
  }
}

TEST_F(Convert, Fp8IsCutAndJoinedExactly) {
  const fs::path eight = mixed("fp8_mixed", 8, "eight");
  for (const std::int64_t ranks : {1, 2}) {
    const std::string name = std::to_string(ranks);
    const fs::path other = converted(eight, to_meta(ranks), "to" + name);
    EXPECT_EQ(difference(other, eight), 0) << ranks;
    const fs::path back = converted(other, to_meta(8), "back" + name);
    EXPECT_TRUE(contents(back, true) == contents(eight, true)) << ranks;
  }
  const fs::path one = mixed("fp8_mixed", 1, "one");
  EXPECT_TRUE(fs::exists(converted(one, to_meta(2), "one2")));
}

class GoldenCut : public Convert,
                  public testing::WithParamInterface<const char*> {};

TEST_P(GoldenCut, OfTheOriginalsFilesAreUndoneByJoining) {
  NIBBLE_REFERENCE_OR_SKIP(source, std::string("golden/meta/") + GetParam());
  const fs::path two = converted(source, to_meta(2), "two");
  const fs::path one = converted(two, to_meta(1), "one");
  const fs::path back = converted(one, to_meta(8), "back");
  EXPECT_TRUE(contents(back, true) == contents(source, true));
  EXPECT_EQ(difference(one, source), 0);
}

INSTANTIATE_TEST_SUITE_P(Files,
                         GoldenCut,
                         testing::Values("scout-mini/int4_330-mp8",
                                         "scout-mini/fp8-mp8",
                                         "maverick-mini/int4_330-mp8",
                                         "maverick-mini/int4_main-mp8"));

TEST_F(Convert, AnotherTypeSaysWhetherItIsExact) {
  const fs::path source = bundled("fable-dense");
  Conversion wide{.to = Layout::kHuggingFace, .dtype = DType::kF32};
  EXPECT_TRUE(convert(source, wide, "f32").exact);
  EXPECT_EQ(read_json_object(at("f32") / "config.json").at("dtype"), "float32");
  EXPECT_EQ(difference(at("f32"), source), 0);
  Conversion narrow{.to = Layout::kHuggingFace, .dtype = DType::kBF16};
  EXPECT_TRUE(convert(at("f32"), narrow, "bf16").exact);
  EXPECT_TRUE(contents(at("bf16")) == contents(source));
  Conversion half{.to = Layout::kMeta, .ranks = 2, .dtype = DType::kF16};
  EXPECT_FALSE(convert(source, half, "f16").exact);
}

TEST_F(Convert, CodesThatALayoutCannotHoldAreRefused) {
  const fs::path int4 =
      quantized(bundled("fable-moe"), quant::load_recipe("int4-asym"), "int4");
  expect_error(ErrorCode::kUnsupported, "cannot hold as they are", [&] {
    convert(int4, to_meta(2), "out");
  });
  const fs::path meta = mixed("int4_mixed", 2, "meta");
  expect_error(ErrorCode::kUnsupported, "Llama 4", [&] {
    convert(meta, {.to = Layout::kGptFast}, "out");
  });
  const fs::path fp8 = mixed("fp8_mixed", 2, "fp8");
  expect_error(ErrorCode::kUnsupported, "no bound on inputs", [&] {
    convert(fp8, kToHf, "out");
  });
  const fs::path real = gpt_fast("int4-g64", "real");
  expect_error(ErrorCode::kUnsupported, "no real zeros", [&] {
    convert(real, kToHf, "out");
  });
  expect_error(ErrorCode::kInvalidArgument, "--requantize", [&] {
    convert(bundled("fable-moe"),
            {.to = Layout::kMeta, .ranks = 2, .requantize = "int4_mixed"},
            "out");
  });
  EXPECT_FALSE(fs::exists(at("out")));
}

// Codes move between layouts that can both express them.
TEST_F(Convert, SymmetricInt4MovesBetweenCompressedTensorsAndMeta) {
  const fs::path hf = quantized(
      bundled("fable-moe"),
      quant::load_recipe(
          R"({"version": 1, "rules": [{"match": ["*.experts.*", )"
          R"("*.shared_expert.*"], "scheme": "int4", "group": 32}]})"),
      "hf");
  const fs::path meta = converted(hf, to_meta(4), "meta");
  EXPECT_EQ(difference(meta, hf), 0);
  const fs::path back = converted(meta, kToHf, "back");
  EXPECT_EQ(difference(back, hf), 0);
}

TEST_F(Convert, IntegersMoveBetweenCompressedTensorsAndGptFast) {
  const fs::path int8 = gpt_fast("int8", "int8");
  const fs::path hf = converted(int8, kToHf, "hf");
  EXPECT_EQ(difference(hf, int8), 0);
  const fs::path back = converted(hf, {.to = Layout::kGptFast}, "back");
  EXPECT_TRUE(contents(back, true) == contents(int8, true));
  // Symmetric int4 is a real zero of nothing.
  static_cast<void>(convert(int8,
                            {.to = Layout::kHuggingFace, .dtype = DType::kBF16},
                            "dense"));  // its head is no longer tied
  const fs::path int4 = quantized(
      at("dense"),
      quant::load_recipe(R"({"version": 1, "defaults": false, "rules": [)"
                         R"({"match": ["*_proj", "lm_head"], "scheme": )"
                         R"("int4", "group": 64}]})"),
      "int4");
  const fs::path file = converted(int4, {.to = Layout::kGptFast}, "file");
  EXPECT_TRUE(fs::exists(file / "model_int4.g64.pth"));
  EXPECT_LE(difference(file, int4), 1e-4F);
}

// Decoded weights are those that the codes stand for.
TEST_F(Convert, CodesAreDecodedWhenAskedTo) {
  const fs::path int8 =
      quantized(bundled("fable-moe"), quant::load_recipe("int8"), "int8");
  const quant::ConvertReport report = convert(
      int8, {.to = Layout::kHuggingFace, .dtype = DType::kF32}, "dense");
  EXPECT_FALSE(report.exact);
  EXPECT_LE(difference(at("dense"), int8), 2e-3F);
  EXPECT_FALSE(read_json_object(at("dense") / "config.json")
                   .contains("quantization_config"));
  // Experts stand in stacks again, so that every layout can take them.
  EXPECT_EQ(contents(at("dense")).size(),
            contents(bundled("fable-moe")).size());
}

TEST_F(Convert, QuantizesAgainWhenAskedToAndSaysSo) {
  const fs::path int8 =
      quantized(bundled("fable-moe"), quant::load_recipe("int8"), "int8");
  const quant::ConvertReport report =
      convert(int8,
              {.to = Layout::kMeta, .ranks = 2, .requantize = "int4_mixed"},
              "meta");
  EXPECT_FALSE(report.exact);
  const nlohmann::json receipt = quant::read_receipt(at("meta"));
  EXPECT_EQ(receipt.at("recipe").at("name"), "int4_mixed");
  EXPECT_NE(receipt.at("notes").dump().find("requantized"), std::string::npos);
  EXPECT_TRUE(fs::exists(at("meta") / "int4_scales_1.pt"));
}

}  // namespace
}  // namespace nibble
