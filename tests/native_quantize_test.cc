// Checkpoints written in the layouts of Meta and of gpt-fast: against the files
// of the original tools, and with every promise that other outputs keep.

#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/base/parallel.h"
#include "nibble/base/progress.h"
#include "nibble/cli/common/model_loader.h"
#include "nibble/load/model_running.h"
#include "nibble/load/native/native_form.h"
#include "nibble/load/tiny_checkpoint.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/quant/pipeline/check/verify.h"
#include "nibble/quant/pipeline/plan/native_recipe.h"
#include "nibble/quant/pipeline/quantize.h"
#include "reference_data.h"
#include "temporary_directory.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using load::NativeLayout;

fs::path bundled(const std::string& name) {
  return fs::path(NIBBLE_SOURCE_DIR) / "models" / name;
}

struct Target {
  NativeLayout layout = NativeLayout::kMeta;
  std::string scheme;
  std::int64_t ranks = 1;
  std::string format = "meta";
  std::int64_t group = 0;
};

Target meta(const std::string& scheme, std::int64_t ranks) {
  return {NativeLayout::kMeta, scheme, ranks};
}

Target gpt_fast(const std::string& scheme, const std::string& variant = "") {
  return {NativeLayout::kGptFast, scheme, 1, "gpt_fast" + variant};
}

void write(const fs::path& source,
           const Target& target,
           quant::QuantizeOptions options) {
  load::CheckpointDirectory directory = load::open_checkpoint(source);
  const quant::Recipe recipe = quant::native_recipe(
      target.layout, target.scheme, target.group, *directory.config);
  directory =
      load::as_native(std::move(directory), target.layout, target.ranks);
  options.format = target.format;
  const std::atomic<bool> stop = false;
  static_cast<void>(
      quant::quantize(directory, recipe, options, null_progress(), stop));
}

fs::path write(const fs::path& source,
               const Target& target,
               const fs::path& output,
               quant::Numerics numerics = quant::Numerics::kExact) {
  quant::QuantizeOptions options;
  options.output = output;
  options.numerics = numerics;
  write(source, target, options);
  return output;
}

// Dense shards of a checkpoint.
fs::path write_dense(const fs::path& source,
                     std::int64_t ranks,
                     const fs::path& output) {
  quant::QuantizeOptions options;
  options.output = output;
  options.format = "meta";
  const std::atomic<bool> stop = false;
  static_cast<void>(quant::quantize(
      load::as_native(
          load::open_checkpoint(source), NativeLayout::kMeta, ranks),
      quant::copying_recipe(),
      options,
      null_progress(),
      stop));
  return output;
}

using Contents = std::map<std::string, std::vector<std::byte>>;

// The tensors of a directory's files.
Contents contents(const fs::path& path) {
  const load::CheckpointDirectory directory = load::open_checkpoint(path);
  Contents all;
  for (const auto& tensor : directory.raw->tensors()) {
    const Tensor copy = directory.raw->load_copy(tensor);
    const auto bytes = copy.view().byte_span();
    all[tensor.name].assign(bytes.begin(), bytes.end());
  }
  return all;
}

// Files by name, but for the receipt, whose times differ.
std::map<std::string, std::string> files_in(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name != "nibble.json") {
      files[name] = read_text_file(entry.path());
    }
  }
  return files;
}

std::vector<std::string> problems_of(
    const fs::path& directory,
    const std::optional<fs::path>& source = std::nullopt) {
  return quant::verify(directory, source, null_progress()).problems;
}

struct Golden {
  const char* model;
  const char* expected;
  const char* scheme;
};

void PrintTo(const Golden& golden, std::ostream* out) {
  *out << golden.model << " " << golden.expected;
}

class MetaGolden : public testing::TestWithParam<Golden> {};

// Every tensor of the original's shards and scale files, from its own bf16
// shards, but for the leftovers of training that are dropped.
TEST_P(MetaGolden, IsWrittenBitForBitInReferenceNumerics) {
  const std::string root = std::string("golden/meta/") + GetParam().model + "/";
  NIBBLE_REFERENCE_OR_SKIP(expected, root + GetParam().expected);
  NIBBLE_REFERENCE_OR_SKIP(source, root + "bf16-mp8");
  const TemporaryDirectory here;
  const fs::path output = write(source,
                                meta(GetParam().scheme, 8),
                                here.path() / "out",
                                quant::Numerics::kReference);
  Contents theirs = contents(expected);
  std::erase_if(theirs, [](const auto& item) {
    return item.first.find("gate_stats") != std::string::npos ||
           item.first.find("expert_activation") != std::string::npos ||
           item.first.ends_with("rope.freqs");
  });
  const Contents ours = contents(output);
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, bytes] : theirs) {
    const auto found = ours.find(name);
    ASSERT_NE(found, ours.end()) << name;
    EXPECT_TRUE(found->second == bytes) << name;
  }
  EXPECT_EQ(read_text_file(output / "params.json"),
            read_text_file(source / "params.json"));
  EXPECT_EQ(problems_of(output, source), std::vector<std::string>());
}

INSTANTIATE_TEST_SUITE_P(
    Files,
    MetaGolden,
    testing::Values(Golden{"scout-mini", "int4_330-mp8", "int4_mixed"},
                    Golden{"scout-mini", "fp8-mp8", "fp8_mixed"},
                    Golden{"maverick-mini", "int4_330-mp8", "int4_mixed"}));

// Whatever form the source has, the result has the same bytes.
TEST(MetaQuantize, GivesTheSameBytesFromEveryFormOfTheSource) {
  NIBBLE_REFERENCE_OR_SKIP(root, "golden/meta/scout-mini");
  const TemporaryDirectory here;
  const auto tensors = [&](const char* source) {
    return contents(
        write(root / source, meta("int4_mixed", 4), here.path() / source));
  };
  const Contents expected = tensors("hf");
  EXPECT_TRUE(tensors("bf16-mp1") == expected);
  EXPECT_TRUE(tensors("bf16-mp8") == expected);
}

TEST(MetaQuantize, WritesParametersAndTokenizerBeside) {
  const TemporaryDirectory here;
  const fs::path output =
      write(bundled("fable-moe"), meta("int4_mixed", 2), here.path() / "out");
  const auto files = files_in(output);
  for (const char* name : {"consolidated.00.pth",
                           "consolidated.01.pth",
                           "int4_scales_0.pt",
                           "int4_scales_1.pt",
                           "params.json",
                           "config.json",
                           "tokenizer.json"}) {
    EXPECT_TRUE(files.contains(name)) << name;
  }
  EXPECT_EQ(files.at("config.json"),
            read_text_file(bundled("fable-moe") / "config.json"));
  EXPECT_EQ(files.at("tokenizer.json"),
            read_text_file(bundled("fable-moe") / "tokenizer.json"));
}

// The receipt names every tensor of the source, with what became of it.
TEST(MetaQuantize, AccountsForEveryTensorOfTheSource) {
  const TemporaryDirectory here;
  const fs::path source = bundled("fable-moe");
  const fs::path output =
      write(source, meta("fp8_mixed", 2), here.path() / "out");
  const nlohmann::json receipt = quant::read_receipt(output);
  std::map<std::string, nlohmann::json> entries;
  for (const auto& entry : receipt.at("tensors")) {
    entries[entry.at("name").get<std::string>()] = entry;
  }
  const load::CheckpointDirectory directory = load::open_checkpoint(source);
  ASSERT_EQ(entries.size(), directory.reader->tensors().size());
  for (const auto& tensor : directory.reader->tensors()) {
    EXPECT_TRUE(entries.contains(tensor.name)) << tensor.name;
  }
  // Layers 0 and 3 are the first and the last one; layer 1 has experts.
  const auto& stack =
      entries.at("model.layers.1.feed_forward.experts.gate_up_proj");
  EXPECT_EQ(stack.at("fate"), "quantized");
  // gate and up of eight experts in two ranks
  EXPECT_EQ(stack.at("layers").size(), 32U);
  const auto& query = entries.at("model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(query.at("fate"), "merged");
  EXPECT_EQ(query.at("outputs")[0].at("name"),
            "rank0/layers.0.attention.wqkv.weight");
  EXPECT_EQ(entries.at("model.norm.weight").at("outputs").size(), 2U);
}

TEST(MetaQuantize, IsVerifiedAgainstItsSource) {
  const TemporaryDirectory here;
  const fs::path source = bundled("fable-moe");
  for (const char* scheme : {"int4_mixed", "fp8_mixed"}) {
    const fs::path output =
        write(source, meta(scheme, 2), here.path() / scheme);
    EXPECT_EQ(problems_of(output), std::vector<std::string>());
    const quant::VerifyReport report =
        quant::verify(output, source, null_progress());
    EXPECT_EQ(report.problems, std::vector<std::string>());
    EXPECT_FALSE(report.layers.empty());
    for (const quant::LayerError& layer : report.layers) {
      EXPECT_GT(layer.figures.cosine, 0.99) << layer.name;
    }
  }
}

TEST(MetaQuantize, ADamagedByteIsFound) {
  const TemporaryDirectory here;
  const fs::path output =
      write(bundled("fable-moe"), meta("int4_mixed", 1), here.path() / "out");
  const fs::path file = output / "consolidated.00.pth";
  const std::uint64_t middle = fs::file_size(file) / 2;
  const File open = File::open_write(file);
  std::byte byte{};
  open.read(middle, std::span(&byte, 1));
  byte ^= std::byte{1};
  open.write(middle, std::span(&byte, 1));
  EXPECT_FALSE(problems_of(output).empty());
}

TEST(MetaQuantize, BytesDependNeitherOnThreadsNorOnMemory) {
  const TemporaryDirectory here;
  const fs::path source = bundled("fable-moe");
  const int before = thread_count();
  const auto run = [&](const char* name, int threads, std::uint64_t memory) {
    set_thread_count(threads);
    quant::QuantizeOptions options;
    options.output = here.path() / name;
    options.memory_bytes = memory;
    write(source, meta("int4_mixed", 2), options);
    return files_in(options.output);
  };
  const auto one = run("one", 1, 0);
  EXPECT_TRUE(run("four", 4, 0) == one);
  EXPECT_TRUE(run("small", 2, 4 << 20) == one);
  set_thread_count(before);
}

// Killed at any step, the same command goes on to the same bytes.
TEST(MetaQuantize, GoesOnAfterAnInterruption) {
  const TemporaryDirectory here;
  const fs::path source = bundled("fable-moe");
  const auto whole =
      files_in(write(source, meta("int4_mixed", 2), here.path() / "whole"));
  for (const auto& [step, skip] : {std::pair("journal", 9),
                                   std::pair("finish", 0),
                                   std::pair("sync", 0),
                                   std::pair("check", 0),
                                   std::pair("rename", 0)}) {
    quant::QuantizeOptions options;
    options.output = here.path() / step;
    std::atomic<int> seen = 0;
    options.before_step =
        [&, wanted = std::string(step), limit = skip](std::string_view name) {
          if (name == wanted && seen++ == limit) {
            fail(ErrorCode::kIo, "the disk is gone");
          }
        };
    EXPECT_THROW(write(source, meta("int4_mixed", 2), options), Error) << step;
    EXPECT_FALSE(fs::exists(options.output)) << step;
    options.before_step = nullptr;
    write(source, meta("int4_mixed", 2), options);
    EXPECT_TRUE(files_in(options.output) == whole) << step;
  }
}

// Layers that are encoded while a dense checkpoint is loaded compute what those
// of a written one do.
TEST(MetaQuantize, OnLoadingGivesTheSameLayers) {
  const TemporaryDirectory here;
  const std::vector<std::int32_t> ids{5, 17, 300, 41};
  const fs::path dense =
      write_dense(bundled("fable-moe"), 2, here.path() / "d");
  for (const std::string scheme : {"int4_mixed", "fp8_mixed"}) {
    const fs::path output = write(dense, meta(scheme, 2), here.path() / scheme);
    const Tensor expected =
        load::logits_of(*cli::load_for_running(output).model, ids);
    const Tensor found = load::logits_of(
        *cli::load_for_running(dense, {.quantize = scheme}).model, ids);
    EXPECT_EQ(load::largest_difference(expected.view(), found.view()), 0)
        << scheme;
  }
  expect_error(ErrorCode::kUnsupported, "without experts", [&] {
    static_cast<void>(cli::load_for_running(bundled("fable-dense"),
                                            {.quantize = "int4_mixed"}));
  });
}

TEST(MetaQuantize, RefusesWhatTheLayoutCannotHold) {
  const TemporaryDirectory here;
  const fs::path out = here.path() / "out";
  expect_error(ErrorCode::kUnsupported, "without experts", [&] {
    write(bundled("fable-dense"), meta("int4_mixed", 1), out);
  });
  expect_error(ErrorCode::kInvalidArgument, "int4_mixed or fp8_mixed", [&] {
    write(bundled("fable-moe"), meta("int4", 1), out);
  });
  expect_error(ErrorCode::kInvalidArgument, "shards: found 3", [&] {
    write(bundled("fable-moe"), meta("int4_mixed", 3), out);
  });
  const fs::path packed =
      write(bundled("fable-moe"), meta("int4_mixed", 1), here.path() / "int4");
  expect_error(ErrorCode::kUnsupported, "already quantized", [&] {
    write(packed, meta("int4_mixed", 1), out);
  });
  EXPECT_FALSE(fs::exists(out));
}

struct GptFastCase {
  const char* file;
  const char* scheme;
};

void PrintTo(const GptFastCase& file, std::ostream* out) {
  *out << file.file;
}

class GptFastGolden : public testing::TestWithParam<GptFastCase> {};

TEST_P(GptFastGolden, IsWrittenBitForBitInReferenceNumerics) {
  NIBBLE_REFERENCE_OR_SKIP(root, "golden/gpt-fast/fable-dense");
  const TemporaryDirectory here;
  const fs::path output = write(bundled("fable-dense"),
                                gpt_fast(GetParam().scheme),
                                here.path() / "out",
                                quant::Numerics::kReference);
  EXPECT_TRUE(fs::exists(output / GetParam().file));
  // The original's file tells no architecture.
  const fs::path beside = here.path() / "golden";
  fs::create_directories(beside);
  fs::copy_file(bundled("fable-dense") / "config.json", beside / "config.json");
  fs::copy_file(root / GetParam().file, beside / GetParam().file);
  EXPECT_TRUE(contents(output) == contents(beside));
  EXPECT_EQ(problems_of(output, bundled("fable-dense")),
            std::vector<std::string>());
}

INSTANTIATE_TEST_SUITE_P(
    Files,
    GptFastGolden,
    testing::Values(GptFastCase{"model_int8.pth", "int8"},
                    GptFastCase{"model_int4.g32.pth", "int4"},
                    GptFastCase{"model_int4.g128.pth", "int4-g128"}));

// Every order of codes holds the same codes.
TEST(GptFastQuantize, WritesEveryOrderOfCodes) {
  const TemporaryDirectory here;
  const fs::path source = bundled("fable-dense");
  const std::vector<std::int32_t> ids{1, 2, 3, 4, 5};
  const auto logits = [&](const std::string& variant, const std::string& told) {
    const std::string name = variant.empty() ? "plain" : variant.substr(1);
    const fs::path output =
        write(source, gpt_fast("int4-g64", variant), here.path() / name);
    EXPECT_EQ(problems_of(output, source), std::vector<std::string>())
        << variant;
    return load::logits_of(
        *cli::load_for_running(output, {.int4_layout = told}).model, ids);
  };
  const Tensor expected = logits("", "");
  for (const char* tiles : {"/tiles2", "/tiles4", "/tiles8"}) {
    EXPECT_EQ(
        load::largest_difference(expected.view(), logits(tiles, "").view()), 0)
        << tiles;
  }
  for (const std::string order : {"bytes", "cpu-avx512", "cpu-avx2"}) {
    EXPECT_EQ(load::largest_difference(expected.view(),
                                       logits("/" + order, order).view()),
              0)
        << order;
  }
}

// gpt-fast pads such inputs with zeros to a multiple of 1024 before it groups
// them.
TEST(GptFastQuantize, PadsInputsThatAGroupDoesNotDivide) {
  const TemporaryDirectory here;
  nlohmann::json config = load::tiny_llama();
  config.update({{"hidden_size", 96},
                 {"intermediate_size", 160},
                 {"head_dim", 24},
                 {"vocab_size", 48}});
  load::TinyCheckpoint(config).write(here.path() / "source");
  const fs::path source = here.path() / "source";
  const fs::path output = write(source,
                                gpt_fast("int4-g64"),
                                here.path() / "out",
                                quant::Numerics::kReference);
  EXPECT_EQ(problems_of(output, source), std::vector<std::string>());

  const std::string module = "model.layers.0.mlp.gate_proj";
  const load::CheckpointDirectory dense = load::open_checkpoint(source);
  const Tensor weight =
      dense.reader->load_copy(dense.reader->get(module + ".weight"));
  Tensor padded = Tensor::zeros(DType::kBF16, {160, 1024});
  for (std::int64_t r = 0; r < 160; ++r) {
    const ConstTensorView row = weight.view().rows(r, 1);
    std::memcpy(padded.view().rows(r, 1).data(), row.data(), row.bytes());
  }
  const load::CheckpointDirectory written = load::open_checkpoint(output);
  const auto opened = quant::open_quantized(*written.config, *written.reader);
  const quant::Quantized found = opened->unpack(module, 0, 160);
  const quant::Quantized expected =
      quant::scheme_for(found.spec)
          .encode(found.spec,
                  std::as_const(padded).view(),
                  {.numerics = quant::Numerics::kReference,
                   .tensor_min = {},
                   .tensor_max = {}});
  const auto equal_rows = [&](const Tensor& a, const Tensor& b) {
    for (std::int64_t r = 0; r < 160; ++r) {
      const auto ours = a.view().rows(r, 1).byte_span();
      const auto theirs = b.view().rows(r, 1).byte_span();
      if (std::memcmp(ours.data(), theirs.data(), ours.size()) != 0) {
        return false;
      }
    }
    return true;
  };
  EXPECT_TRUE(equal_rows(found.codes, expected.codes));
  EXPECT_TRUE(equal_rows(found.scales, expected.scales));
  EXPECT_TRUE(equal_rows(*found.zeros, *expected.zeros));
}

TEST(GptFastQuantize, OtherLayoutsDoNotPad) {
  const TemporaryDirectory here;
  load::TinyCheckpoint(load::tiny_llama()).write(here.path() / "source");
  quant::QuantizeOptions options;
  options.output = here.path() / "out";
  const std::atomic<bool> stop = false;
  expect_error(ErrorCode::kUnsupported, "multiple of the group of 32", [&] {
    static_cast<void>(quant::quantize(
        load::open_checkpoint(here.path() / "source"),
        quant::load_recipe(R"({"version": 1, "rules": [{"match": "*",
            "scheme": "int4", "group": 32, "on_indivisible": "pad"}]})"),
        options,
        null_progress(),
        stop));
  });
  EXPECT_FALSE(fs::exists(options.output));
}

TEST(GptFastQuantize, ExactNumbersLoseLess) {
  const TemporaryDirectory here;
  const fs::path source = bundled("fable-dense");
  const auto error = [&](quant::Numerics numerics, const char* name) {
    const fs::path output =
        write(source, gpt_fast("int8"), here.path() / name, numerics);
    double sum = 0;
    for (const auto& layer :
         quant::verify(output, source, null_progress()).layers) {
      sum += layer.figures.relative_mse;
    }
    return sum;
  };
  EXPECT_LT(error(quant::Numerics::kExact, "exact"),
            error(quant::Numerics::kReference, "reference"));
}

TEST(GptFastQuantize, RefusesWhatTheLayoutCannotHold) {
  const TemporaryDirectory here;
  const fs::path out = here.path() / "out";
  expect_error(ErrorCode::kUnsupported, "Llama 2 or 3", [&] {
    write(bundled("fable-moe"), gpt_fast("int8"), out);
  });
  expect_error(ErrorCode::kUnsupported, "int4-gptq", [&] {
    write(bundled("fable-dense"), gpt_fast("int4-gptq"), out);
  });
  expect_error(ErrorCode::kInvalidArgument, "groups of 48", [&] {
    write(bundled("fable-dense"), gpt_fast("int4-g48"), out);
  });
  const fs::path int8 =
      write(bundled("fable-dense"), gpt_fast("int8"), here.path() / "int8");
  expect_error(ErrorCode::kUnsupported, "already quantized", [&] {
    write(int8, gpt_fast("int8"), out);
  });
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace nibble
