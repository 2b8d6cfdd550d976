#include "nibble/load/native/gpt_fast_models.h"

#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/load/checkpoint_directory.h"
#include "reference_data.h"
#include "temporary_directory.h"

namespace nibble::load {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(GptFastModelsTest, TakesTheLongestNameContained) {
  EXPECT_EQ(gpt_fast_params("/x/meta-llama/Llama-2-7b-chat-hf")["n_kv_heads"],
            32);
  EXPECT_EQ(gpt_fast_params("Meta-Llama-3.1-8B-Instruct")["use_scaled_rope"],
            true);
  EXPECT_EQ(gpt_fast_params("Meta-Llama-3-8B")["rope_theta"], 5e5);
  EXPECT_EQ(gpt_fast_params("Mistral-7B-Instruct-v0.2/")["n_kv_heads"], 8);
}

TEST(GptFastModelsTest, SaysWhichNamesAreKnown) {
  try {
    static_cast<void>(gpt_fast_params("my-model"));
    FAIL() << "found a model";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("llama-3.1-405b"));
    EXPECT_THAT(error.hint(), HasSubstr("config.json"));
  }
}

class GptFastFileTest : public ::testing::Test {
 protected:
  TemporaryDirectory temporary_;
  fs::path directory_ = temporary_.path();
};

// The file that gpt-fast's converter made is the bundled model, read back.
TEST_F(GptFastFileTest, IsTheHuggingFaceModelByteForByte) {
  NIBBLE_REFERENCE_OR_SKIP(file, "golden/gpt-fast/fable-dense/model.pth");
  const fs::path model = fs::path(NIBBLE_SOURCE_DIR) / "models/fable-dense";
  fs::copy(file, directory_ / "model.pth");
  fs::copy(model / "config.json", directory_ / "config.json");
  const CheckpointDirectory found = open_checkpoint(directory_ / "model.pth");
  const CheckpointDirectory expected = open_checkpoint(model);
  for (const container::TensorInfo& tensor : expected.reader->tensors()) {
    const Tensor a = expected.reader->load_copy(tensor);
    const Tensor b = found.reader->load_copy(found.reader->get(tensor.name));
    ASSERT_EQ(a.bytes(), b.bytes()) << tensor.name;
    EXPECT_EQ(std::memcmp(std::as_const(a).view().data(),
                          std::as_const(b).view().data(),
                          a.bytes()),
              0)
        << tensor.name;
  }
}

TEST_F(GptFastFileTest, AsksWhichOfSeveralFiles) {
  NIBBLE_REFERENCE_OR_SKIP(files, "golden/gpt-fast/fable-dense");
  try {
    static_cast<void>(open_checkpoint(files));
    FAIL() << "chose one";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("model_int4.g32.pth"));
  }
}

}  // namespace
}  // namespace nibble::load
