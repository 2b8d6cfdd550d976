// What is refused, by headers alone wherever that is possible: nothing may be
// written then.

#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/quant/pipeline/quantize.h"
#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "nibble/tensor/convert.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Tensors = std::map<std::string, Tensor>;

const std::string kInt4 = one_rule(R"("scheme": "int4", "group": 32)");

// A checkpoint that is refused, and how.
struct Case {
  const char* name;
  std::function<void(Tensors&, json&)> change;
  ErrorCode code;
  const char* message;
  const char* family = "llama";
};

// NOLINTNEXTLINE(readability-identifier-naming): the name gtest looks for
void PrintTo(const Case& refused, std::ostream* out) {
  *out << refused.name;
}

void put(Tensors& tensors, const std::string& name, Tensor tensor) {
  tensors.insert_or_assign(name, std::move(tensor));
}

// Sets one element of a weight.
void poke(Tensors& tensors,
          const std::string& name,
          std::size_t element,
          float value) {
  tensors.at(name).view().raw<std::uint16_t>()[element] = float_to_bf16(value);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class Refusal : public testing::TestWithParam<Case> {};

TEST_P(Refusal, NamesTheFaultAndWritesNothing) {
  const Case& refused = GetParam();
  const TemporaryDirectory temporary;
  const fs::path source = temporary.path() / "in";
  write_tiny(source, {.family = refused.family, .change = refused.change});
  expect_error(refused.code, refused.message, [&] {
    static_cast<void>(quantize_to(source, kInt4, temporary.path() / "out"));
  });
  EXPECT_FALSE(fs::exists(temporary.path() / "out"));
  EXPECT_FALSE(fs::exists(temporary.path() / "out.partial"));
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints,
    Refusal,
    testing::Values(
        Case{"quantized_source",
             [](Tensors&, json& config) {
               config["quantization_config"] = {{"quant_method", "gptq"}};
             },
             ErrorCode::kUnsupported,
             "config.json: quantization_config: found a checkpoint that is "
             "already quantized"},
        Case{"compression_config",
             [](Tensors&, json& config) {
               config["compression_config"] = {{"format", "pack-quantized"}};
             },
             ErrorCode::kUnsupported,
             "give the original checkpoint in 16 or 32 bits"},
        Case{"missing_tensor",
             [](Tensors& tensors, json&) {
               tensors.erase("model.layers.1.mlp.up_proj.weight");
             },
             ErrorCode::kNotFound,
             "tensor model.layers.1.mlp.up_proj.weight: found none, expected "
             "shape (128, 64) by config.json"},
        Case{"missing_layer",
             [](Tensors&, json& config) { config["num_hidden_layers"] = 3; },
             ErrorCode::kNotFound,
             "model.layers.2."},
        Case{
            "missing_norm",
            [](Tensors& tensors, json&) { tensors.erase("model.norm.weight"); },
            ErrorCode::kNotFound,
            "tensor model.norm.weight: found none, expected shape (64)"},
        Case{"unknown_tensor",
             [](Tensors& tensors, json&) {
               put(tensors,
                   "model.layers.0.self_attn.wkv.weight",
                   Tensor::zeros(DType::kBF16, {4, 4}));
             },
             ErrorCode::kCorruptData,
             "tensor model.layers.0.self_attn.wkv.weight: found a tensor that "
             "has no place"},
        Case{"layer_beyond_the_config",
             [](Tensors&, json& config) { config["num_hidden_layers"] = 1; },
             ErrorCode::kCorruptData,
             "tensor model.layers.1."},
        Case{"undeclared_bias",
             [](Tensors& tensors, json&) {
               put(tensors,
                   "model.layers.0.self_attn.q_proj.bias",
                   Tensor::zeros(DType::kBF16, {64}));
             },
             ErrorCode::kCorruptData,
             "correct config.json (number of layers, biases)"},
        Case{"wrong_shape",
             [](Tensors& tensors, json&) {
               put(tensors,
                   "model.layers.0.mlp.down_proj.weight",
                   Tensor::zeros(DType::kBF16, {128, 64}));
             },
             ErrorCode::kCorruptData,
             "tensor model.layers.0.mlp.down_proj.weight: found shape (128, "
             "64), expected (64, 128) by config.json"},
        Case{"wrong_vocabulary",
             [](Tensors&, json& config) { config["vocab_size"] = 95; },
             ErrorCode::kCorruptData,
             "tensor model.embed_tokens.weight: found shape (96, 64), expected "
             "(95, 64)"},
        Case{"swapped_stack",
             [](Tensors& tensors, json&) {
               put(tensors,
                   "model.layers.1.feed_forward.experts.gate_up_proj",
                   Tensor::zeros(DType::kBF16, {3, 320, 64}));
             },
             ErrorCode::kCorruptData,
             "experts.gate_up_proj: found shape (3, 320, 64), expected (3, 64, "
             "320)",
             "llama4"},
        Case{"too_few_experts",
             [](Tensors& tensors, json&) {
               put(tensors,
                   "model.layers.1.feed_forward.experts.down_proj",
                   Tensor::zeros(DType::kBF16, {2, 160, 64}));
             },
             ErrorCode::kCorruptData,
             "experts.down_proj: found shape (2, 160, 64)",
             "llama4"},
        Case{"integer_weight",
             [](Tensors& tensors, json&) {
               put(tensors,
                   "model.layers.0.mlp.up_proj.weight",
                   Tensor::zeros(DType::kI8, {128, 64}));
             },
             ErrorCode::kUnsupported,
             "tensor model.layers.0.mlp.up_proj.weight: found a weight of type "
             "I8, expected BF16, F16 or F32"},
        Case{"float64_weight",
             [](Tensors& tensors, json&) {
               put(tensors,
                   "model.layers.0.mlp.up_proj.weight",
                   Tensor::zeros(DType::kF64, {128, 64}));
             },
             ErrorCode::kUnsupported,
             "found a weight of type F64"},
        Case{"fp8_weight_without_a_declaration",
             [](Tensors& tensors, json&) {
               put(tensors,
                   "model.layers.0.mlp.up_proj.weight",
                   Tensor::zeros(DType::kF8E4M3, {128, 64}));
             },
             ErrorCode::kUnsupported,
             "already quantized cannot be quantized again"},
        Case{"nan_in_a_weight",
             [](Tensors& tensors, json&) {
               poke(tensors,
                    "model.layers.1.mlp.down_proj.weight",
                    3 * 128 + 5,
                    kNaN);
               poke(tensors,
                    "model.layers.1.mlp.down_proj.weight",
                    40 * 128,
                    kInfinity);
             },
             ErrorCode::kCorruptData,
             "tensor model.layers.1.mlp.down_proj.weight: found NaN at row 3, "
             "column 5 (1 NaN and 1 infinite values in all), expected finite "
             "weights"},
        Case{"infinity_in_a_norm",
             [](Tensors& tensors, json&) {
               poke(tensors, "model.norm.weight", 7, -kInfinity);
             },
             ErrorCode::kCorruptData,
             "tensor model.norm.weight: found infinity at index [7]"},
        Case{"nan_in_an_expert",
             [](Tensors& tensors, json&) {
               poke(tensors,
                    "model.layers.1.feed_forward.experts.gate_up_proj",
                    2 * 64 * 320 + 9 * 320 + 300,
                    kNaN);
             },
             ErrorCode::kCorruptData,
             "experts.gate_up_proj: found NaN at index [2, 9, 300]",
             "llama4"}),
    [](const testing::TestParamInfo<Case>& refused) {
      return std::string(refused.param.name);
    });

class RefusedOutput : public testing::Test {
 protected:
  RefusedOutput() { write_tiny(source_); }

  void expect(ErrorCode code,
              const char* message,
              const fs::path& output,
              bool overwrite = false) {
    QuantizeOptions options;
    options.output = output;
    options.overwrite = overwrite;
    expect_error(code, message, [&] {
      static_cast<void>(quantize_to(source_, kInt4, options));
    });
  }

  TemporaryDirectory temporary_;
  fs::path source_ = temporary_.path() / "in";
};

TEST_F(RefusedOutput, IsADirectoryThatHoldsSomething) {
  const fs::path file = temporary_.add("out/precious.txt", "mine");
  expect(ErrorCode::kInvalidArgument,
         "found a directory that is not empty",
         file.parent_path());
  // Replacing is for checkpoints; anything else is somebody's data.
  expect(ErrorCode::kInvalidArgument,
         "found a directory without config.json",
         file.parent_path(),
         true);
  EXPECT_EQ(read_text_file(file), "mine");
}

TEST_F(RefusedOutput, IsAFile) {
  expect(ErrorCode::kInvalidArgument,
         "found a file, expected a directory",
         temporary_.add("out", "x"));
}

TEST_F(RefusedOutput, OverlapsTheSource) {
  for (const fs::path& output : {source_,
                                 source_ / "out",
                                 temporary_.path(),
                                 source_ / ".." / "in" / ""}) {
    SCOPED_TRACE(output);
    expect(ErrorCode::kInvalidArgument, "overlaps the source", output, true);
  }
  fs::create_symlink(source_, temporary_.path() / "link");
  expect(ErrorCode::kInvalidArgument,
         "overlaps the source",
         temporary_.path() / "link" / "out");
}

TEST_F(RefusedOutput, HasNoPath) {
  expect(ErrorCode::kInvalidArgument, "found no path", "");
}

TEST_F(RefusedOutput, LiesInAFolderThatCannotBeWritten) {
  const fs::path folder = temporary_.path() / "locked";
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms(0555));
  // Root may write everywhere, so it becomes nobody meanwhile.
  constexpr uid_t kNobody = 65534;
  const uid_t user = ::geteuid();
  fs::permissions(temporary_.path(), fs::perms(0755));
  ASSERT_TRUE(user != 0 || ::seteuid(kNobody) == 0);
  expect(ErrorCode::kIo, "locked", folder / "out");
  ASSERT_TRUE(user != 0 || ::seteuid(user) == 0);
  fs::permissions(folder, fs::perms(0755));
}

TEST_F(RefusedOutput, HoldsSomebodyElsesPartialDirectory) {
  temporary_.add("out.partial/precious.txt", "mine");
  expect(ErrorCode::kInvalidArgument,
         "holds no work of nibble",
         temporary_.path() / "out");
  EXPECT_TRUE(fs::exists(temporary_.path() / "out.partial/precious.txt"));
}

TEST_F(RefusedOutput, MakesMissingFolders) {
  static_cast<void>(
      quantize_to(source_, kInt4, temporary_.path() / "a" / "b" / "out"));
  EXPECT_TRUE(fs::exists(temporary_.path() / "a/b/out/nibble.json"));
}

TEST_F(RefusedOutput, MayBeAnEmptyDirectory) {
  fs::create_directory(temporary_.path() / "out");
  static_cast<void>(quantize_to(source_, kInt4, temporary_.path() / "out"));
  EXPECT_TRUE(fs::exists(temporary_.path() / "out/nibble.json"));
}

TEST_F(RefusedOutput, IsReplacedWholeWhenAskedTo) {
  QuantizeOptions options;
  options.output = temporary_.path() / "out";
  options.shard_bytes = 20'000;
  static_cast<void>(quantize_to(source_, kInt4, options));
  temporary_.add("out/stale.txt", "old");
  options.overwrite = true;
  options.shard_bytes = 1 << 30;
  static_cast<void>(quantize_to(source_, kInt4, options));
  EXPECT_FALSE(fs::exists(options.output / "stale.txt"));
  EXPECT_FALSE(fs::exists(options.output / "model.safetensors.index.json"));
  EXPECT_EQ(container::open_safetensors(options.output)->files().size(), 1u);
  EXPECT_FALSE(fs::exists(temporary_.path() / "out.partial"));
}

TEST_F(RefusedOutput, SparesTheOldResultWhenTheNewOneFails) {
  QuantizeOptions options;
  options.output = temporary_.path() / "out";
  static_cast<void>(quantize_to(source_, kInt4, options));
  const auto before = contents_of(options.output);
  write_tiny(source_, {.change = [](Tensors& tensors, json&) {
               poke(tensors, "model.norm.weight", 0, kNaN);
             }});
  options.overwrite = true;
  expect_error(ErrorCode::kCorruptData, "found NaN", [&] {
    static_cast<void>(quantize_to(source_, kInt4, options));
  });
  EXPECT_TRUE(contents_of(options.output) == before);
}

TEST_F(RefusedOutput, NeedsRoomForOneTile) {
  QuantizeOptions options;
  options.output = temporary_.path() / "out";
  options.memory_bytes = 64 << 10;
  expect_error(ErrorCode::kOverBudget, "give at least --memory ", [&] {
    static_cast<void>(quantize_to(source_, kInt4, options));
  });
  // What the message names is enough.
  try {
    static_cast<void>(quantize_to(source_, kInt4, options));
  } catch (const Error& error) {
    const std::string hint = error.hint();
    options.memory_bytes = std::stoull(hint.substr(hint.rfind(' '))) << 10;
  }
  static_cast<void>(quantize_to(source_, kInt4, options));
}

TEST(RefusedRecipe, MayNotQuantizeATiedHead) {
  const TemporaryDirectory temporary;
  write_tiny(temporary.path() / "in", {.change = [](Tensors&, json& config) {
               config["tie_word_embeddings"] = true;
             }});
  const std::string recipe =
      R"({"version": 1, "defaults": false, "rules": [
          {"match": "*", "scheme": "int4", "group": 32}]})";
  expect_error(ErrorCode::kBadRecipe, "ties it to the embedding", [&] {
    static_cast<void>(
        quantize_to(temporary.path() / "in", recipe, temporary.path() / "out"));
  });
}

TEST(RefusedRecipe, MustDivideTheColumns) {
  const TemporaryDirectory temporary;
  write_tiny(temporary.path() / "in");
  expect_error(ErrorCode::kBadRecipe, "64", [&] {
    static_cast<void>(
        quantize_to(temporary.path() / "in", "int4", temporary.path() / "out"));
  });
  EXPECT_FALSE(fs::exists(temporary.path() / "out.partial"));
}

void write_novel(const fs::path& directory) {
  write_tiny(directory, {.change = [](Tensors& t, json& config) {
               config["architectures"] = {"NovelForCausalLM"};
               config["model_type"] = "novel";
               put(t,
                   "model.layers.0.something.mask",
                   Tensor::from_floats({2}, {-kInfinity, 0}));
             }});
}

TEST(UnknownArchitecture, HasNoKeepListToRelyOn) {
  const TemporaryDirectory temporary;
  write_novel(temporary.path() / "in");
  expect_error(ErrorCode::kUnsupported, "NovelForCausalLM", [&] {
    static_cast<void>(
        quantize_to(temporary.path() / "in", kInt4, temporary.path() / "out"));
  });
  EXPECT_FALSE(fs::exists(temporary.path() / "out.partial"));
}

TEST(UnknownArchitecture, IsQuantizedByRulesAloneWithALoudNote) {
  const TemporaryDirectory temporary;
  write_novel(temporary.path() / "in");
  const QuantizeReport report =
      quantize_to(temporary.path() / "in",
                  R"({"version": 1, "defaults": false, "rules": [
          {"match": "*_proj", "scheme": "int4", "group": 32}]})",
                  temporary.path() / "out");
  ASSERT_FALSE(report.notes.empty());
  EXPECT_THAT(report.notes.front(), testing::HasSubstr("unknown architecture"));
  EXPECT_EQ(read_receipt(report.output).at("family"), "plain");
}

}  // namespace
}  // namespace nibble::quant
