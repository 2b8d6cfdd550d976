#include "nibble/quant/pipeline/check/verify.h"

#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/container/safetensors/writer.h"
#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class Verify : public testing::Test {
 protected:
  Verify() {
    write_tiny(source_, {.family = "llama4"});
    static_cast<void>(quantize_to(
        source_, one_rule(R"("scheme": "int4", "group": 32)"), output_));
  }

  [[nodiscard]] VerifyReport run(bool with_source = false) const {
    return verify(output_,
                  with_source ? std::optional(source_) : std::nullopt,
                  null_progress());
  }

  void expect_problem(const char* text, bool with_source = false) const {
    const VerifyReport report = run(with_source);
    EXPECT_FALSE(report.ok);
    EXPECT_THAT(report.problems, Contains(HasSubstr(text)));
  }

  // Replaces the output's tensors after a change.
  void rewrite(
      const std::function<void(std::map<std::string, Tensor>&)>& change) const {
    const fs::path path = output_ / "model.safetensors";
    std::map<std::string, Tensor> tensors;
    {
      const auto reader = container::open_safetensors(path);
      for (const auto& info : reader->tensors()) {
        tensors.emplace(info.name, reader->load_copy(info));
      }
    }
    change(tensors);
    std::vector<container::NamedTensor> named;
    for (const auto& [name, tensor] : tensors) {
      named.push_back({name, tensor.view()});
    }
    container::write_safetensors(path, named);
  }

  TemporaryDirectory temporary_;
  const fs::path source_ = temporary_.path() / "in";
  const fs::path output_ = temporary_.path() / "out";
};

TEST_F(Verify, FindsNothingWrongWithAFreshResult) {
  const VerifyReport report = run();
  EXPECT_TRUE(report.ok);
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.notes, IsEmpty());
  // 3 of the dense MLP, 3 of the shared expert, 3 of each of 3 experts.
  EXPECT_EQ(report.layers.size(), 15u);
}

TEST_F(Verify, RecomputesTheReceiptsErrorsFromTheSource) {
  const VerifyReport stated = run();
  const VerifyReport computed = run(true);
  EXPECT_TRUE(computed.ok) << testing::PrintToString(computed.problems);
  std::map<std::string, ErrorFigures> by_name;
  for (const LayerError& layer : stated.layers) {
    by_name[layer.name] = layer.figures;
  }
  ASSERT_EQ(computed.layers.size(), by_name.size());
  for (const LayerError& layer : computed.layers) {
    const ErrorFigures& before = by_name.at(layer.name);
    EXPECT_DOUBLE_EQ(layer.figures.relative_mse, before.relative_mse);
    EXPECT_DOUBLE_EQ(layer.figures.cosine, before.cosine);
    EXPECT_DOUBLE_EQ(layer.figures.max_abs, before.max_abs);
  }
}

TEST_F(Verify, FindsEachFigureThatTheReceiptMisstates) {
  const std::string text = read_text_file(output_ / "nibble.json");
  for (const auto& [key, what] :
       {std::pair("relative_mse", "found relative error"),
        std::pair("cosine", "found cosine"),
        std::pair("max_abs", "found largest error")}) {
    json receipt = json::parse(text);
    for (json& tensor : receipt.at("tensors")) {
      if (tensor.contains("layers")) {
        json& figure = tensor.at("layers").at(0).at(key);
        figure = figure.get<double>() + 1e-6;
        break;
      }
    }
    temporary_.add("out/nibble.json", receipt.dump());
    expect_problem(what, true);
  }
}

TEST_F(Verify, FindsAChangedBit) {
  const File file = File::open_write(output_ / "model.safetensors");
  std::byte byte{};
  file.read(file.size_bytes() / 2, {&byte, 1});
  byte ^= std::byte{4};
  file.write(file.size_bytes() / 2, {&byte, 1});
  expect_problem("found checksum xxh3:");
}

TEST_F(Verify, FindsMissingAndExtraTensors) {
  rewrite([](auto& tensors) {
    auto node = tensors.extract("model.norm.weight");
    node.key() = "model.norm.weight2";
    tensors.insert(std::move(node));
  });
  expect_problem("tensor model.norm.weight: found none, expected BF16");
  expect_problem(
      "model.norm.weight2: found one that the receipt does not list");
}

TEST_F(Verify, FindsAMissingPartOfAQuantizedLayer) {
  rewrite([](auto& tensors) {
    tensors.erase("model.layers.0.feed_forward.up_proj.weight_scale");
  });
  expect_problem("model.layers.0.feed_forward.up_proj.weight_scale");
}

TEST_F(Verify, FindsScalesThatAreNoScales) {
  for (const float value : {0.0F, -1.0F, std::nanf("")}) {
    rewrite([&](auto& tensors) {
      Tensor& scales =
          tensors.at("model.layers.0.feed_forward.up_proj.weight_scale");
      Tensor changed = Tensor::copy_of(std::as_const(scales).view());
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
      changed.view().template raw<std::uint16_t>()[5] =
          static_cast<std::uint16_t>(bits >> 16);
      scales = std::move(changed);
    });
    expect_problem("at element 5, expected finite scales above zero");
  }
}

TEST_F(Verify, FindsChangedAndMissingFiles) {
  temporary_.add("out/generation_config.json", "{}");
  expect_problem("file generation_config.json: found 2 bytes");
  fs::remove(output_ / "LICENSE");
  expect_problem("LICENSE: found no such file");
}

TEST_F(Verify, FindsAChangedDeclaration) {
  const std::string text = read_text_file(output_ / "config.json");
  std::string changed = text;
  const std::size_t at = changed.find("\"group_size\": 32");
  ASSERT_NE(at, std::string::npos);
  changed.replace(at, 16, "\"group_size\": 64");
  temporary_.add("out/config.json", changed);
  expect_problem("file config.json: found");
}

TEST_F(Verify, FindsWeightsThatNobodyListed) {
  fs::copy_file(output_ / "model.safetensors", output_ / "old.safetensors");
  expect_problem("file old.safetensors: found weights that the receipt");
}

TEST_F(Verify, NotesFilesThatWereAddedLater) {
  temporary_.add("out/README.md", "hello");
  const VerifyReport report = run();
  EXPECT_TRUE(report.ok);
  EXPECT_THAT(report.notes, Contains(HasSubstr("README.md")));
}

TEST_F(Verify, FindsAnotherSource) {
  write_tiny(source_, {.family = "llama4", .change = [](auto& tensors, json&) {
                         tensors
                             .at("model.layers.0.feed_forward.up_proj.weight")
                             .view()
                             .template raw<std::uint16_t>()[3] ^= 1U;
                         tensors.at("model.norm.weight")
                             .view()
                             .template raw<std::uint16_t>()[3] ^= 1U;
                       }});
  expect_problem("up_proj: found other weights in the source", true);
  expect_problem(
      "tensor model.norm.weight: found other bytes than in the "
      "source",
      true);
}

TEST_F(Verify, ChecksWhatItCanWithoutAReceipt) {
  fs::remove(output_ / "nibble.json");
  const VerifyReport report = run(true);
  EXPECT_TRUE(report.ok);
  EXPECT_THAT(report.notes, Contains(HasSubstr("nibble.json is absent")));
  EXPECT_EQ(report.layers.size(), 15u);
}

TEST_F(Verify, SurvivesADamagedReceipt) {
  const std::string text = read_text_file(output_ / "nibble.json");
  for (const std::string& damaged :
       {std::string("{"),
        std::string("{}"),
        std::string(R"({"files": [{"name": "../../etc/passwd",
            "bytes": 1, "checksum": "x"}], "shards": [], "tensors": 3})"),
        text.substr(0, text.size() / 2)}) {
    temporary_.add("out/nibble.json", damaged);
    const VerifyReport report = run();
    EXPECT_FALSE(report.ok) << damaged.substr(0, 60);
  }
}

TEST_F(Verify, ThrowsForADirectoryThatIsNoCheckpoint) {
  EXPECT_THROW(static_cast<void>(
                   verify(temporary_.path(), std::nullopt, null_progress())),
               Error);
}

}  // namespace
}  // namespace nibble::quant
