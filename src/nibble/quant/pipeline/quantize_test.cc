// Whole jobs: what comes out, and that it is always the same.

#include "nibble/quant/pipeline/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/cpu.h"
#include "nibble/base/files/file.h"
#include "nibble/base/hash/hash.h"
#include "nibble/base/parallel.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/container/safetensors/writer.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/pipeline/check/receipt.h"
#include "nibble/quant/pipeline/execute/execute.h"
#include "nibble/quant/pipeline/plan/layout.h"
#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "nibble/tensor/convert.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;
using container::CheckpointReader;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kInt4 = one_rule(R"("scheme": "int4", "group": 32)");

std::string bytes_of(const CheckpointReader& reader, const std::string& name) {
  const Tensor tensor = reader.load_copy(reader.get(name));
  return {reinterpret_cast<const char*>(tensor.view().data()),
          tensor.view().bytes()};
}

class Quantize : public testing::Test {
 protected:
  [[nodiscard]] fs::path at(const char* name) const {
    return temporary_.path() / name;
  }

  // A tiny checkpoint, written once under a name.
  fs::path tiny(const char* name, const TinyOptions& options = {}) const {
    write_tiny(at(name), options);
    return at(name);
  }

  TemporaryDirectory temporary_;
};

TEST_F(Quantize, WritesACompleteDirectory) {
  const fs::path source = tiny("in");
  const QuantizeReport report = quantize_to(source, kInt4, at("out"));
  std::map<std::string, std::string> files = contents_of(at("out"));
  std::vector<std::string> names;
  for (const auto& [name, content] : files) {
    names.push_back(name);
  }
  EXPECT_THAT(names,
              ElementsAre("LICENSE",
                          "config.json",
                          "extra/notes.txt",
                          "generation_config.json",
                          "model.safetensors",
                          "nibble.json"));
  for (const char* side : {"LICENSE", "extra/notes.txt"}) {
    EXPECT_EQ(files[side], read_text_file(source / side));
  }
  const std::string before = read_text_file(source / "config.json");
  const std::size_t end = before.rfind("\n}");
  EXPECT_EQ(files["config.json"].substr(0, end), before.substr(0, end));
  EXPECT_EQ(json::parse(files["config.json"])
                .at("quantization_config")
                .at("quant_method"),
            "compressed-tensors");
  EXPECT_FALSE(fs::exists(at("out.partial")));
  EXPECT_EQ(
      report.output_bytes,
      read_receipt(report.output).at("output_bytes").get<std::uint64_t>());
}

TEST_F(Quantize, AccountsForEveryTensorOfTheSource) {
  const fs::path source = tiny("in", {.family = "llama4"});
  const QuantizeReport report = quantize_to(source, kInt4, at("out"));
  const auto from = container::open_safetensors(source);
  const auto to = container::open_safetensors(at("out"));
  std::map<std::string, json> entries;
  std::size_t outputs = 0;
  const json receipt = read_receipt(report.output);
  for (const json& entry : receipt.at("tensors")) {
    entries[entry.at("name")] = entry;
    for (const json& output : entry.at("outputs")) {
      ++outputs;
      const std::string bytes = bytes_of(*to, output.at("name"));
      EXPECT_EQ(hash_bytes(std::as_bytes(std::span(bytes))),
                output.at("checksum"));
    }
  }
  EXPECT_EQ(entries.size(), from->tensors().size());
  EXPECT_EQ(outputs, to->tensors().size());
  const json& stack =
      entries.at("model.layers.1.feed_forward.experts.gate_up_proj");
  EXPECT_EQ(stack.at("fate"), "split");
  EXPECT_EQ(stack.at("layers").size(), 6);
  const json& router = entries.at("model.layers.1.feed_forward.router.weight");
  EXPECT_EQ(router.at("fate"), "copied");
  EXPECT_EQ(router.at("reason"), "router is on the keep list of llama4");
  const json& mlp = entries.at("model.layers.0.feed_forward.up_proj.weight");
  EXPECT_EQ(mlp.at("fate"), "quantized");
  EXPECT_EQ(mlp.at("scheme"), "int4 group 32");
  EXPECT_GT(mlp.at("relative_mse").get<double>(), 0);
  EXPECT_LT(mlp.at("relative_mse").get<double>(), 0.02);
  EXPECT_GT(mlp.at("cosine").get<double>(), 0.99);
}

// A stack (experts, in, gate then up) becomes one (out, in) matrix an expert:
// each must equal what the same matrix gives as a plain weight.
TEST_F(Quantize, SplitsStacksIntoTransposedExperts) {
  std::map<std::string, Tensor> dense;
  const fs::path source =
      tiny("in", {.family = "llama4", .change = [&](auto& tensors, json&) {
                    for (auto& [name, tensor] : tensors) {
                      dense.emplace(name, Tensor::copy_of(tensor.view()));
                    }
                  }});
  static_cast<void>(quantize_to(source, kInt4, at("out")));
  const load::CheckpointDirectory out = load::open_checkpoint(at("out"));
  const auto opened = open_quantized(*out.config, *out.reader);
  ASSERT_NE(opened, nullptr);

  const std::string experts = "model.layers.1.feed_forward.experts";
  const Tensor& stack = dense.at(experts + ".gate_up_proj");  // (3, 64, 320)
  const auto values = std::as_const(stack).view().raw<std::uint16_t>();
  const Scheme& scheme = scheme_named("int4");
  for (std::int64_t expert = 0; expert < 3; ++expert) {
    for (const std::string part : {"gate_proj", "up_proj"}) {
      const std::int64_t first = part == "gate_proj" ? 0 : 160;
      Tensor matrix(DType::kBF16, {160, 64});
      for (std::int64_t r = 0; r < 160; ++r) {
        for (std::int64_t c = 0; c < 64; ++c) {
          matrix.view()
              .raw<std::uint16_t>()[static_cast<std::size_t>(r * 64 + c)] =
              values[static_cast<std::size_t>(expert * 64 * 320 + c * 320 +
                                              first + r)];
        }
      }
      const std::string module =
          experts + "." + std::to_string(expert) + "." + part;
      const Quantized found = opened->unpack(module, 0, 160);
      const Quantized expected = scheme.encode(
          opened->spec_of(module)->weight, std::as_const(matrix).view(), {});
      EXPECT_EQ(std::memcmp(found.codes.view().data(),
                            expected.codes.view().data(),
                            found.codes.view().bytes()),
                0)
          << module;
    }
  }
}

TEST_F(Quantize, CopiesAStackThatStaysDenseAsItIs) {
  const fs::path source = tiny("in", {.family = "llama4"});
  const std::string recipe =
      R"({"version": 1, "rules": [
          {"match": "*.experts.*", "scheme": "keep"},
          {"match": "*", "scheme": "int4", "group": 32}]})";
  const QuantizeReport report = quantize_to(source, recipe, at("out"));
  const auto in = container::open_safetensors(source);
  const auto out = container::open_safetensors(at("out"));
  const std::string stack = "model.layers.1.feed_forward.experts.down_proj";
  EXPECT_EQ(bytes_of(*out, stack), bytes_of(*in, stack));
  const json receipt = read_receipt(report.output);
  for (const json& entry : receipt.at("tensors")) {
    if (entry.at("name") == stack) {
      EXPECT_EQ(entry.at("fate"), "copied");
      EXPECT_EQ(entry.at("reason"), "rules[0] keeps it");
    }
  }
}

// Plans may also cut a stack into dense matrices, one an expert.
TEST_F(Quantize, ExecutesDenseExpertsOfASplitStack) {
  const load::CheckpointDirectory source =
      load::open_checkpoint(tiny("in", {.family = "llama4"}));
  QuantizeOptions options;
  options.output = at("out");
  Plan plan = make_plan(source, load_recipe(kInt4), options);
  const auto layer = std::find_if(
      plan.layers.begin(), plan.layers.end(), [](const PlannedLayer& l) {
        return l.module.ends_with("experts.1.up_proj");
      });
  ASSERT_NE(layer, plan.layers.end());
  layer->spec.reset();
  const std::string name = layer->module + ".weight";
  layer->outputs = {{name, DType::kBF16, {160, 64}, 160 * 64 * 2, "", 0}};
  lay_out(plan, *source.reader, options.shard_bytes);
  fs::create_directories(at("out"));
  const auto files = files_of(plan);
  container::SafetensorsSetWriter writer(at("out"), files);
  const std::atomic<bool> stop{false};
  const std::vector<ItemResult> results = execute({.plan = plan,
                                                   .source = source,
                                                   .writer = writer,
                                                   .progress = null_progress(),
                                                   .stop = stop,
                                                   .results = {},
                                                   .finished = {},
                                                   .before_step = {}});
  EXPECT_EQ(results.size(), items_of(plan).size());
  const Tensor stack = source.reader->load_copy(source.reader->get(
      "model.layers.1.feed_forward.experts.gate_up_proj"));  // (3, 64, 320)
  const auto from = stack.view().raw<std::uint16_t>();
  const auto out = container::open_safetensors(at("out") / "model.safetensors");
  const Tensor dense = out->load_copy(out->get(name));  // (160, 64)
  const auto to = dense.view().raw<std::uint16_t>();
  for (std::size_t r = 0; r < 160; ++r) {
    for (std::size_t c = 0; c < 64; ++c) {
      ASSERT_EQ(to[r * 64 + c], from[(64 + c) * 320 + 160 + r]);
    }
  }
}

TEST_F(Quantize, CopiesVisionWeightsOfAWrapperUntouched) {
  const fs::path source = tiny("in", {.family = "llama4", .wrapper = true});
  const QuantizeReport report = quantize_to(source, kInt4, at("out"));
  const auto in = container::open_safetensors(source);
  const auto out = container::open_safetensors(at("out"));
  for (const char* name : {"vision_model.encoder.layers.0.mlp.fc1.weight",
                           "vision_model.class_embedding",
                           "multi_modal_projector.linear_1.weight"}) {
    EXPECT_EQ(bytes_of(*in, name), bytes_of(*out, name));
  }
  EXPECT_NE(out->find("language_model.model.layers.1.feed_forward.experts.2."
                      "up_proj.weight_packed"),
            nullptr);
  const json config = json::parse(read_text_file(at("out") / "config.json"));
  EXPECT_THAT(config.at("quantization_config").at("ignore").dump(),
              HasSubstr("multi_modal_projector.linear_1"));
  EXPECT_FALSE(config.at("text_config").contains("quantization_config"));
  EXPECT_THAT(report.notes, testing::IsEmpty());
}

TEST_F(Quantize, LeavesATiedHeadAway) {
  const fs::path source = tiny("in", {.tied = true});
  static_cast<void>(quantize_to(source, kInt4, at("out")));
  EXPECT_EQ(container::open_safetensors(at("out"))->find("lm_head.weight"),
            nullptr);
}

TEST_F(Quantize, GivesScalesTheTypeOfTheWeights) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const std::string name(dtype_name(dtype));
    const fs::path source = tiny(name.c_str(), {.dtype = dtype});
    const fs::path out = at((name + ".out").c_str());
    static_cast<void>(quantize_to(source, kInt4, out));
    const auto reader = container::open_safetensors(out);
    EXPECT_EQ(reader->get("model.layers.0.mlp.up_proj.weight_scale").dtype,
              dtype);
    EXPECT_EQ(reader->get("model.norm.weight").dtype, dtype);
  }
}

TEST_F(Quantize, CutsTheOutputIntoShardsWithAnIndex) {
  const fs::path source = tiny("in");
  QuantizeOptions options;
  options.output = at("out");
  options.shard_bytes = 20'000;
  static_cast<void>(quantize_to(source, kInt4, options));
  const auto reader = container::open_safetensors(at("out"));
  EXPECT_GT(reader->files().size(), 3u);
  std::map<std::size_t, std::uint64_t> bytes;
  for (const auto& tensor : reader->tensors()) {
    bytes[tensor.file] += tensor.bytes;
  }
  for (const auto& [file, size] : bytes) {
    EXPECT_LE(size, options.shard_bytes) << reader->files()[file];
  }
  // The same tensors as in one file.
  static_cast<void>(quantize_to(source, kInt4, at("whole")));
  const auto whole = container::open_safetensors(at("whole"));
  ASSERT_EQ(whole->tensors().size(), reader->tensors().size());
  for (const auto& tensor : whole->tensors()) {
    EXPECT_EQ(bytes_of(*whole, tensor.name), bytes_of(*reader, tensor.name));
  }
}

// ---- The same bytes always -------------------------------------------------

class Threads {
 public:
  explicit Threads(int count) { set_thread_count(count); }

  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  ~Threads() { set_thread_count(0); }
};

TEST_F(Quantize, GivesTheSameBytesForEveryThreadCountMemoryAndSharding) {
  const fs::path one = tiny("one", {.family = "llama4"});
  const fs::path five = tiny("five", {.family = "llama4", .shards = 5});
  const std::string recipes[] = {
      kInt4, one_rule(R"("scheme": "fp8", "group": "tensor")")};
  for (const std::string& recipe : recipes) {
    std::map<std::string, std::string> expected;
    for (const int threads : {1, 2, 7}) {
      const Threads limited(threads);
      for (const std::uint64_t memory : {3U << 20, 64U << 20}) {
        for (const fs::path& source : {one, five}) {
          SCOPED_TRACE(testing::Message() << threads << " threads, " << memory
                                          << " bytes, " << source);
          QuantizeOptions options;
          options.output = at("out");
          options.memory_bytes = memory;
          options.overwrite = true;
          options.shard_bytes = 30'000;
          static_cast<void>(quantize_to(source, recipe, options));
          std::map<std::string, std::string> found = contents_of(at("out"));
          if (expected.empty()) {
            expected = std::move(found);
          } else {
            EXPECT_TRUE(found == expected);
          }
        }
      }
    }
  }
}

// The set of instructions is chosen once a process, so each runs in its own:
// this program again, with this test alone.
TEST(OneIsa, QuantizesWhereTheParentAsked) {
  const char* directory = std::getenv("NIBBLE_TEST_ISA_OUTPUT");
  if (directory == nullptr) {
    GTEST_SKIP() << "runs as a part of the test of all sets of instructions";
  }
  const char* rules[] = {R"("scheme": "int4", "group": 32)",
                         R"("scheme": "int4", "group": 64, "symmetric": false)",
                         R"("scheme": "int8", "group": "channel")",
                         R"("scheme": "fp8", "group": "channel")",
                         R"("scheme": "fp8", "group": [128, 128])"};
  int number = 0;
  for (const char* rule : rules) {
    static_cast<void>(
        quantize_to(fs::path(NIBBLE_SOURCE_DIR) / "models" / "fable-moe",
                    one_rule(rule),
                    fs::path(directory) / std::to_string(number++)));
  }
}

TEST_F(Quantize, GivesTheSameBytesForEverySetOfInstructions) {
  std::map<std::string, std::string> expected;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (!cpu_has(isa)) {
      continue;
    }
    const std::string name(isa_name(isa));
    fs::create_directory(at(name.c_str()));
    const std::string command =
        "NIBBLE_ISA=" + name +
        " NIBBLE_TEST_ISA_OUTPUT=" + at(name.c_str()).string() + " " +
        fs::read_symlink("/proc/self/exe").string() +
        " --gtest_filter=OneIsa.* > /dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0) << name;
    std::map<std::string, std::string> found;
    for (int i = 0; i < 5; ++i) {
      for (auto& [file, content] :
           contents_of(at(name.c_str()) / std::to_string(i))) {
        found[std::to_string(i) + "/" + file] = std::move(content);
      }
    }
    EXPECT_GT(found.size(), 20u);
    if (expected.empty()) {
      expected = found;
    }
    for (const auto& [file, content] : expected) {
      EXPECT_TRUE(found[file] == content) << name << ": " << file;
    }
  }
}

// ---- Awkward numbers -------------------------------------------------------

// Every scheme on weights with zero rows, groups of subnormals, and huge next
// to tiny values: finite, positive scales, loadable, zeros stay zeros.
TEST_F(Quantize, KeepsZeroAndSubnormalGroupsFinite) {
  const std::string module = "model.layers.0.mlp.down_proj";  // (64, 128)
  const fs::path source = tiny(
      "in", {.change = [&](auto& tensors, json&) {
        Tensor& weight = tensors.at(module + ".weight");
        const auto values = weight.view().template raw<std::uint16_t>();
        std::fill_n(values.begin(), 128, std::uint16_t{0});       // a row
        std::fill_n(values.begin() + 128, 32, std::uint16_t{1});  // 9.2e-41
        std::fill_n(
            values.begin() + 160, 32, std::uint16_t{0x8080});  // -1.2e-38
        values[192] = 0x7F7F;  // the largest BF16
        std::fill_n(values.begin() + 256, 64, float_to_bf16(1e-30F));
      }});
  const char* schemes[] = {
      R"("scheme": "int4", "group": 32)",
      R"("scheme": "int4", "group": 32, "symmetric": false)",
      R"("scheme": "int8", "group": "channel")",
      R"("scheme": "int8", "group": "channel", "activations": "dynamic")",
      R"("scheme": "fp8", "group": "channel")",
      R"("scheme": "fp8", "group": "tensor")",
      R"("scheme": "fp8", "group": [128, 128])"};
  for (const Numerics numerics : {Numerics::kExact, Numerics::kReference}) {
    for (const std::string keys : schemes) {
      SCOPED_TRACE(keys);
      QuantizeOptions options;
      options.output = at("out");
      options.overwrite = true;
      options.numerics = numerics;
      // The check phase itself refuses scales that are not finite or zero.
      static_cast<void>(
          quantize_to(source,
                      R"({"version": 1, "rules": [{"match": "*.down_proj", )" +
                          keys + "}]}",
                      options));
      const load::CheckpointDirectory out = load::open_checkpoint(at("out"));
      const auto opened = open_quantized(*out.config, *out.reader);
      const Quantized codes = opened->unpack(module, 0, 64);
      Tensor decoded(DType::kF32, {64, 128});
      scheme_for(codes.spec).decode(codes, decoded.view());
      const auto values = decoded.view().as<float>();
      for (std::size_t i = 0; i < 128; ++i) {
        EXPECT_EQ(values[i], 0) << i;
      }
      for (const float value : values) {
        ASSERT_TRUE(std::isfinite(value));
      }
    }
  }
}

}  // namespace
}  // namespace nibble::quant
