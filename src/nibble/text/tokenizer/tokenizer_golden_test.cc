// Ids and texts of published tokenizers against what the tokenizers library
// gives for them.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/text/tokenizer/tokenizer.h"
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
    if (item.contains("with_special")) {
      EXPECT_EQ(tokenizer.encode(text), item.at("with_special").get<Ids>())
          << text;
    }
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
                         testing::Values("llama2",
                                         "llama3_1",
                                         "qwen3",
                                         "meta-llama2",
                                         "meta-llama3",
                                         "meta-llama4"),
                         [](const auto& suite) {
                           std::string name = suite.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Prompts that Meta's code makes, and what it does with special tokens that a
// user spells out.
TEST(MetaTokenizer, FindsSpecialTokensInTemplatesOnly) {
  NIBBLE_REFERENCE_OR_SKIP(path, "golden/tokenizers/meta-llama3");
  const Tokenizer tokenizer = load_tokenizer(path);
  EXPECT_EQ(
      tokenizer.encode_template("<|begin_of_text|><|start_header_id|>"
                                "user<|end_header_id|>\n\nHello<|eot_id|>"),
      (Ids{128000, 128006, 882, 128007, 271, 9906, 128009}));
  EXPECT_EQ(tokenizer.encode("<|eot_id|>", false).size(), 7U);
  EXPECT_EQ(tokenizer.vocabulary(), 128256);
}

TEST(MetaTokenizer, KnowsEverySpecialTokenOfLlama4) {
  NIBBLE_REFERENCE_OR_SKIP(path, "golden/tokenizers/meta-llama4");
  const Tokenizer tokenizer = load_tokenizer(path);
  EXPECT_EQ(tokenizer.vocabulary(), 202048);
  EXPECT_EQ(tokenizer.token_to_id("<|eot|>"), 200008);
  EXPECT_EQ(tokenizer.token_to_id("<|patch|>"), 200092);
  EXPECT_EQ(tokenizer.token_to_id("<|reasoning_thinking_end|>"), 201143);
}

TEST(RankFile, RefusesOtherForms) {
  EXPECT_THROW(static_cast<void>(parse_rank_file("IQ== 0\nIg== 2\n")), Error);
  EXPECT_THROW(static_cast<void>(parse_rank_file("I?== 0\n")), Error);
  EXPECT_THROW(static_cast<void>(parse_rank_file("IQ==")), Error);
  EXPECT_THROW(static_cast<void>(parse_rank_file("IQ== 0\n")), Error);
}

}  // namespace
}  // namespace nibble::text
