#include "nibble/cli/common/prompt.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace nibble::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kBos = 2032;

class Beginning : public ::testing::Test {
 protected:
  Beginning()
      : tokenizer_(text::load_tokenizer(fs::path(NIBBLE_SOURCE_DIR) / "models" /
                                        "fable-moe")) {
    directory_ = fs::path(::testing::TempDir()) /
                 ("beginning-" + std::to_string(::getpid()));
    fs::create_directories(directory_);
    config_.bos_token = kBos;
  }

  ~Beginning() override { fs::remove_all(directory_); }

  void put(const std::string& name, const std::string& content) {
    std::ofstream(directory_ / name) << content;
  }

  std::vector<std::int32_t> encode(const std::string& text) {
    return encode_beginning(tokenizer_, directory_, config_, text);
  }

  bool begins_with_bos() {
    const std::vector<std::int32_t> ids = encode("Once");
    return !ids.empty() && ids.front() == kBos;
  }

  text::Tokenizer tokenizer_;
  fs::path directory_;
  model::ModelConfig config_;
};

TEST_F(Beginning, IsWhatTheTokenizerSaysWhenNothingElseIsThere) {
  EXPECT_EQ(encode("Once upon a time"), tokenizer_.encode("Once upon a time"));
}

TEST_F(Beginning, HasTheTokenThatConversationsBeginWith) {
  put("tokenizer_config.json", R"({"chat_template": "{{ bos_token }}x"})");
  EXPECT_TRUE(begins_with_bos());
}

TEST_F(Beginning, ReadsATemplateInAFileOfItsOwn) {
  put("chat_template.jinja", "{{ bos_token }}x");
  EXPECT_TRUE(begins_with_bos());
  put("chat_template.jinja", "x");
  EXPECT_FALSE(begins_with_bos());
}

TEST_F(Beginning, FollowsTheSettingBeforeTheTemplate) {
  put("tokenizer_config.json",
      R"({"add_bos_token": false, "chat_template": "{{ bos_token }}x"})");
  EXPECT_FALSE(begins_with_bos());
  put("tokenizer_config.json", R"({"add_bos_token": true})");
  EXPECT_TRUE(begins_with_bos());
}

TEST_F(Beginning, IsNotDoubled) {
  put("tokenizer_config.json", R"({"add_bos_token": true})");
  const std::vector<std::int32_t> ids = encode("<|begin_of_text|>Once");
  ASSERT_GE(ids.size(), 2U);
  EXPECT_EQ(ids[0], kBos);
  EXPECT_NE(ids[1], kBos);
}

TEST_F(Beginning, NeedsAModelThatNamesTheToken) {
  put("tokenizer_config.json", R"({"add_bos_token": true})");
  config_.bos_token.reset();
  EXPECT_FALSE(begins_with_bos());
}

}  // namespace
}  // namespace nibble::cli
