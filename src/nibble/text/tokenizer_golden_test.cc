// Ids and texts of published tokenizers against what the tokenizers library
// gives for them.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/base/file.h"
#include "nibble/text/tokenizer.h"
#include "reference_data.h"

namespace nibble::text {
namespace {

using Ids = std::vector<std::int32_t>;

const std::filesystem::path kSource = NIBBLE_SOURCE_DIR;

nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_text_file(path));
}

TEST(BundledTokenizer, GivesTheReferenceIds) {
  const Tokenizer tokenizer = load_tokenizer(kSource / "models/fable-moe");
  const auto cases = read_json(kSource / "tests/data/tokenizer-reference.json");
  ASSERT_GT(cases.size(), 10U);
  for (const auto& item : cases) {
    const auto text = item.at("text").get<std::string>();
    const auto ids = item.at("ids").get<Ids>();
    EXPECT_EQ(tokenizer.encode(text, false), ids) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

TEST(BundledTokenizer, IsTheSameInBothModels) {
  const Tokenizer moe = load_tokenizer(kSource / "models/fable-moe");
  const Tokenizer dense = load_tokenizer(kSource / "models/fable-dense");
  const std::string text = read_text_file(kSource / "models/held.txt");
  const std::string head = text.substr(0, 20000);
  EXPECT_EQ(moe.encode(head), dense.encode(head));
}

// The whole of a text comes back, and streaming gives the same bytes.
TEST(BundledTokenizer, DecodesHeldOutTextToItself) {
  const Tokenizer tokenizer = load_tokenizer(kSource / "models/fable-moe");
  const std::string text = read_text_file(kSource / "models/held.txt");
  const Ids ids = tokenizer.encode(text, false);
  EXPECT_EQ(tokenizer.decode(ids), text);
}

class GoldenTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, GivesTheRecordedIdsAndTexts) {
  const std::string name = GetParam();
  NIBBLE_REFERENCE_OR_SKIP(path, "golden/tokenizers/" + name);
  NIBBLE_REFERENCE_OR_SKIP(expected, "golden/tokenizers/encodings.json");
  const Tokenizer tokenizer = load_tokenizer(path);
  const auto cases = read_json(expected).at(name);
  ASSERT_EQ(cases.size(), 189U);
  for (const auto& item : cases) {
    const auto text = item.at("text").get<std::string>();
    const auto ids = item.at("ids").get<Ids>();
    EXPECT_EQ(tokenizer.encode(text, false), ids) << text;
    EXPECT_EQ(tokenizer.encode(text), item.at("with_special").get<Ids>())
        << text;
    const auto decoded = item.at("decoded").get<std::string>();
    EXPECT_EQ(tokenizer.decode(ids), decoded);
    TokenStream stream = tokenizer.stream();
    std::string streamed;
    for (const std::int32_t id : ids) {
      streamed += stream.push(id);
    }
    streamed += stream.finish();
    EXPECT_EQ(streamed, decoded);
  }
}

INSTANTIATE_TEST_SUITE_P(Published,
                         GoldenTokenizer,
                         testing::Values("llama2", "llama3_1", "qwen3"),
                         [](const auto& suite) {
                           return std::string(suite.param);
                         });

}  // namespace
}  // namespace nibble::text
