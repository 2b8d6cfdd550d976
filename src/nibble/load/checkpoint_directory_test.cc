#include "nibble/load/checkpoint_directory.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/container/safetensors/writer.h"
#include "temporary_directory.h"

namespace nibble::load {
namespace {

namespace fs = std::filesystem;

// A directory with one small weight and a config.
class OpenCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    const Tensor value = Tensor::from_floats({2}, {1, 2});
    const std::vector<container::NamedTensor> tensors{{"x", value.view()}};
    container::write_safetensors(path() / "model.safetensors", tensors);
    directory_.add("config.json", R"({"model_type": "llama"})");
  }

  const fs::path& path() const { return directory_.path(); }

  void expect_refused(ErrorCode code, std::string_view part) {
    expect_error(
        code, part, [&] { static_cast<void>(open_checkpoint(path())); });
  }

  TemporaryDirectory directory_;
};

TEST_F(OpenCheckpoint, GivesConfigTensorsAndSideFiles) {
  directory_.add("tokenizer.json", "{}");
  const CheckpointDirectory checkpoint = open_checkpoint(path());
  EXPECT_EQ(checkpoint.path, path());
  EXPECT_EQ((*checkpoint.config)["model_type"], "llama");
  EXPECT_EQ(checkpoint.reader->tensors().size(), 1u);
  EXPECT_EQ(checkpoint.side_files, std::vector<fs::path>{"tokenizer.json"});
}

TEST_F(OpenCheckpoint, SideFilesAreAllButWeightsAndHiddenOnes) {
  for (const char* name : {"additional_chat_templates/tool.jinja",
                           "LICENSE",
                           "modeling_custom.py",
                           "tokenizer.model",
                           // None of these:
                           "nibble.json",
                           "pytorch_model.bin",
                           "pytorch_model.bin.index.json",
                           "consolidated.00.pth",
                           "consolidated.safetensors",
                           "other.safetensors",
                           "model.gguf",
                           "original/params.json",
                           "original/tokenizer.model",
                           "onnx/config.json",
                           ".gitattributes",
                           ".cache/huggingface/x.lock"}) {
    directory_.add(name, "content");
  }
  const std::vector<fs::path> expected{"LICENSE",
                                       "additional_chat_templates/tool.jinja",
                                       "modeling_custom.py",
                                       "tokenizer.model"};
  EXPECT_EQ(open_checkpoint(path()).side_files, expected);
}

TEST_F(OpenCheckpoint, FollowsLinksAndPassesOverBrokenOnes) {
  const TemporaryDirectory hub;
  fs::create_symlink(path() / "config.json", hub.path() / "config.json");
  fs::create_symlink(path() / "model.safetensors",
                     hub.path() / "model.safetensors");
  fs::create_symlink(directory_.add("blob", "x"), hub.path() / "README.md");
  fs::create_symlink("/no/such/file", hub.path() / "broken");
  const CheckpointDirectory checkpoint = open_checkpoint(hub.path());
  EXPECT_EQ(checkpoint.reader->tensors().size(), 1u);
  EXPECT_EQ(checkpoint.side_files, std::vector<fs::path>{"README.md"});
}

TEST_F(OpenCheckpoint, LinkedFoldersAreNotEntered) {
  directory_.add("folder/file", "x");
  fs::create_directory_symlink(path(), path() / "folder" / "up");
  EXPECT_EQ(open_checkpoint(path()).side_files,
            std::vector<fs::path>{"folder/file"});
}

TEST_F(OpenCheckpoint, RefusesABadConfigWithItsPosition) {
  directory_.add("config.json", "{\n  \"hidden_size\": ,\n}");
  expect_refused(ErrorCode::kCorruptData, "config.json: line 2, column 18");
  directory_.add("config.json", "[1, 2]");
  expect_refused(ErrorCode::kCorruptData,
                 "config.json: found a JSON array, expected an object");
  directory_.add("config.json", R"({"a":)" + std::string(100'000, '['));
  expect_refused(ErrorCode::kCorruptData, "nested deeper than 64 levels");
  directory_.add("config.json", "");
  expect_refused(ErrorCode::kCorruptData, "config.json: line 1, column 1");
}

TEST_F(OpenCheckpoint, NamesWhatIsMissing) {
  fs::remove(path() / "config.json");
  expect_refused(ErrorCode::kNotFound, "found no config.json");
  fs::remove(path() / "model.safetensors");
  expect_refused(ErrorCode::kNotFound, "found no weights");
  directory_.add("pytorch_model.bin", "");
  expect_refused(ErrorCode::kUnsupported, "PyTorch pickles");
  expect_error(ErrorCode::kNotFound, "found no such directory", [] {
    static_cast<void>(open_checkpoint("/no/such/model"));
  });
  expect_error(ErrorCode::kNotFound, "expected the directory", [&] {
    static_cast<void>(open_checkpoint(path() / "pytorch_model.bin"));
  });
}

TEST(OpenBundledModels, TheirSideFilesAreComplete) {
  for (const char* model : {"fable-dense", "fable-moe"}) {
    const CheckpointDirectory checkpoint =
        open_checkpoint(fs::path(NIBBLE_SOURCE_DIR) / "models" / model);
    const std::vector<fs::path> expected{
        "generation_config.json", "tokenizer.json", "tokenizer_config.json"};
    EXPECT_EQ(checkpoint.side_files, expected);
  }
}

}  // namespace
}  // namespace nibble::load
