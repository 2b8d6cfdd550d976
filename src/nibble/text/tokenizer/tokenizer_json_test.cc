// What tokenizer.json may hold, and how anything else is refused.

#include <cstdlib>
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "nibble/base/files/file.h"
#include "nibble/text/tokenizer/tokenizer.h"
#include "reference_data.h"
#include "temporary_directory.h"

namespace nibble::text {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

// A byte-level tokenizer of a few letters.
Json small() {
  return Json::parse(R"({
    "version": "1.0",
    "added_tokens": [
      {"id": 10, "content": "<s>", "special": true},
      {"id": 11, "content": "<t>", "special": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "post_processor": {
      "type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [10]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3},
              "merges": ["a b"]}})");
}

Tokenizer parse(const Json& json) {
  return parse_tokenizer(json.dump());
}

TEST(TokenizerJson, ReadsASmallTokenizer) {
  const Tokenizer tokenizer = parse(small());
  EXPECT_EQ(tokenizer.encode("ab a<t>b"), (Ids{10, 2, 3, 0, 11, 1}));
  EXPECT_EQ(tokenizer.encode("ab", false), Ids{2});
  EXPECT_EQ(tokenizer.encode(""), Ids{10});
  EXPECT_EQ(tokenizer.decode(Ids{10, 2, 3, 11, 999, -1}), "<s>ab <t>");
  EXPECT_EQ(tokenizer.decode(Ids{10, 2, 11}, true), "ab<t>");
  EXPECT_EQ(tokenizer.token_to_id("<s>"), 10);
  EXPECT_EQ(tokenizer.token_to_id("ab"), 2);
  EXPECT_EQ(tokenizer.token_to_id("zz"), std::nullopt);
  EXPECT_EQ(tokenizer.special_ids(), Ids{10});
  EXPECT_TRUE(tokenizer.is_special(10));
  EXPECT_FALSE(tokenizer.is_special(11));
  EXPECT_EQ(tokenizer.vocabulary(), 12);
}

TEST(TokenizerJson, ReadsMergesInBothSpellings) {
  Json json = small();
  json["model"]["merges"] = Json::array({Json::array({"a", "b"})});
  EXPECT_EQ(parse(json).encode("ab", false), Ids{2});
}

TEST(TokenizerJson, ReadsOldFilesWithoutAModelType) {
  Json json = small();
  json["model"].erase("type");
  EXPECT_EQ(parse(json).encode("ab", false), Ids{2});
}

TEST(TokenizerJson, TextThatIsNoUtf8IsReadAsReplacementCharacters) {
  Json json = small();
  // U+FFFD in the byte alphabet: EF BF BD.
  json["model"]["vocab"]["ï"] = 4;
  json["model"]["vocab"]["¿"] = 5;
  json["model"]["vocab"]["½"] = 6;
  EXPECT_EQ(parse(json).encode("a\xFF", false), (Ids{0, 4, 5, 6}));
}

TEST(TokenizerJson, NormalizedTokensAreFoundInNormalizedText) {
  Json json = small();
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"][1]["content"] = "e\u0301";
  EXPECT_EQ(parse(json).encode("\u00E9", false), Ids{});
  EXPECT_EQ(parse(json).encode("e\u0301", false), Ids{11});
  json["added_tokens"][1]["normalized"] = true;
  EXPECT_EQ(parse(json).encode("\u00E9", false), Ids{11});
  EXPECT_EQ(parse(json).encode("e\u0301", false), Ids{11});
}

TEST(TokenizerJson, PostProcessorsGoAroundEachOther) {
  Json json = small();
  Json outer = json["post_processor"];
  outer["single"] = {{{"Sequence", {{"id", "A"}}}},
                     {{"SpecialToken", {{"id", "</s>"}}}}};
  outer["special_tokens"] = {{"</s>", {{"ids", {11, 11}}}}};
  json["post_processor"] = {
      {"type", "Sequence"},
      {"processors", {{{"type", "ByteLevel"}}, json["post_processor"], outer}}};
  EXPECT_EQ(parse(json).encode("a"), (Ids{10, 0, 11, 11}));
}

struct Refusal {
  const char* part;  // of the message
  ErrorCode code;
  std::function<void(Json&)> damage;
};

class RefusedTokenizer : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedTokenizer, SaysWhere) {
  Json json = small();
  GetParam().damage(json);
  expect_error(GetParam().code, GetParam().part, [&] {
    static_cast<void>(parse(json));
  });
}

constexpr ErrorCode kCorrupt = ErrorCode::kCorruptData;
constexpr ErrorCode kUnknown = ErrorCode::kUnsupported;

INSTANTIATE_TEST_SUITE_P(
    Components,
    RefusedTokenizer,
    testing::Values(
        Refusal{"normalizer: found Lowercase, expected one of NFC",
                kUnknown,
                [](Json& j) {
                  j["normalizer"] = {{"type", "Lowercase"}};
                }},
        Refusal{"normalizer.normalizers[1]: found NFKC",
                kUnknown,
                [](Json& j) {
                  j["normalizer"] = {
                      {"type", "Sequence"},
                      {"normalizers", {{{"type", "NFC"}}, {{"type", "NFKC"}}}}};
                }},
        Refusal{"pre_tokenizer: found Whitespace",
                kUnknown,
                [](Json& j) {
                  j["pre_tokenizer"] = {{"type", "Whitespace"}};
                }},
        Refusal{"post_processor: found BertProcessing",
                kUnknown,
                [](Json& j) {
                  j["post_processor"] = {{"type", "BertProcessing"}};
                }},
        Refusal{"decoder: found WordPiece",
                kUnknown,
                [](Json& j) {
                  j["decoder"] = {{"type", "WordPiece"}};
                }},
        Refusal{"model.type: found Unigram, expected one of BPE",
                kUnknown,
                [](Json& j) { j["model"]["type"] = "Unigram"; }},
        Refusal{"model.dropout: found 0.1",
                kUnknown,
                [](Json& j) { j["model"]["dropout"] = 0.1; }},
        Refusal{
            "model.continuing_subword_prefix: found '##'",
            kUnknown,
            [](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; }},
        Refusal{"model.end_of_word_suffix: found '</w>'",
                kUnknown,
                [](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }},
        Refusal{"pre_tokenizer.pattern.Regex: pattern '(': at byte 1",
                kUnknown,
                [](Json& j) {
                  j["pre_tokenizer"] = {{"type", "Split"},
                                        {"pattern", {{"Regex", "("}}},
                                        {"behavior", "Isolated"}};
                }},
        Refusal{"found another sequence than one A", kUnknown, [](Json& j) {
                  j["post_processor"]["single"].push_back(
                      {{"Sequence", {{"id", "B"}}}});
                }}));

INSTANTIATE_TEST_SUITE_P(
    Values,
    RefusedTokenizer,
    testing::Values(
        Refusal{"top level: found no model",
                kCorrupt,
                [](Json& j) { j.erase("model"); }},
        Refusal{"model: found no vocab",
                kCorrupt,
                [](Json& j) { j["model"].erase("vocab"); }},
        Refusal{"model: found no merges",
                kCorrupt,
                [](Json& j) { j["model"].erase("merges"); }},
        Refusal{"model.vocab: found array",
                kCorrupt,
                [](Json& j) { j["model"]["vocab"] = Json::array(); }},
        Refusal{"model.vocab['a']: found number 1.5",
                kCorrupt,
                [](Json& j) { j["model"]["vocab"]["a"] = 1.5; }},
        Refusal{"model.vocab['a']: found number -1",
                kCorrupt,
                [](Json& j) { j["model"]["vocab"]["a"] = -1; }},
        Refusal{"model.vocab['a']: found number 4294967296",
                kCorrupt,
                [](Json& j) { j["model"]["vocab"]["a"] = 4294967296; }},
        Refusal{"which 'a' has too",
                kCorrupt,
                [](Json& j) { j["model"]["vocab"]["b"] = 0; }},
        Refusal{"model.merges: found string 'a b', expected an array",
                kCorrupt,
                [](Json& j) { j["model"]["merges"] = "a b"; }},
        Refusal{"model.merges[0]: found string 'ab'",
                kCorrupt,
                [](Json& j) { j["model"]["merges"] = {"ab"}; }},
        Refusal{"model.merges[0]: found string 'a b c'",
                kCorrupt,
                [](Json& j) { j["model"]["merges"] = {"a b c"}; }},
        Refusal{"model.merges[0]: found array",
                kCorrupt,
                [](Json& j) {
                  j["model"]["merges"] = Json::array({{"a", "b", "c"}});
                }},
        Refusal{"model: merges[0]: found 'x', expected a token",
                kCorrupt,
                [](Json& j) { j["model"]["merges"] = {"x a"}; }},
        Refusal{"model: unk_token: found '<unk>'",
                kCorrupt,
                [](Json& j) { j["model"]["unk_token"] = "<unk>"; }},
        Refusal{"model.byte_fallback: found string",
                kCorrupt,
                [](Json& j) { j["model"]["byte_fallback"] = "yes"; }},
        Refusal{"normalizer: found no type",
                kCorrupt,
                [](Json& j) { j["normalizer"] = Json::object(); }},
        Refusal{"normalizer: found string 'NFC', expected an object",
                kCorrupt,
                [](Json& j) { j["normalizer"] = "NFC"; }}));

INSTANTIATE_TEST_SUITE_P(
    Places,
    RefusedTokenizer,
    testing::Values(
        Refusal{"pre_tokenizer.behavior: found string 'Sideways'",
                kCorrupt,
                [](Json& j) {
                  j["pre_tokenizer"] = {{"type", "Split"},
                                        {"pattern", {{"String", "a"}}},
                                        {"behavior", "Sideways"}};
                }},
        Refusal{"pre_tokenizer.pattern: found object",
                kCorrupt,
                [](Json& j) {
                  j["pre_tokenizer"] = {{"type", "Split"},
                                        {"pattern", {{"Glob", "*"}}},
                                        {"behavior", "Isolated"}};
                }},
        Refusal{"pre_tokenizer.replacement: found string '__'",
                kCorrupt,
                [](Json& j) {
                  j["pre_tokenizer"] = {{"type", "Metaspace"},
                                        {"replacement", "__"}};
                }},
        Refusal{"pre_tokenizer.prepend_scheme: found string 'last'",
                kCorrupt,
                [](Json& j) {
                  j["pre_tokenizer"] = {{"type", "Metaspace"},
                                        {"replacement", "_"},
                                        {"prepend_scheme", "last"}};
                }},
        Refusal{"found always beside add_prefix_space false",
                kCorrupt,
                [](Json& j) {
                  j["pre_tokenizer"] = {{"type", "Metaspace"},
                                        {"replacement", "_"},
                                        {"prepend_scheme", "always"},
                                        {"add_prefix_space", false}};
                }},
        Refusal{"decoder.start: found number -1",
                kCorrupt,
                [](Json& j) {
                  j["decoder"] = {{"type", "Strip"},
                                  {"content", " "},
                                  {"start", -1},
                                  {"stop", 0}};
                }},
        Refusal{"added_tokens[1]: found no content",
                kCorrupt,
                [](Json& j) { j["added_tokens"][1].erase("content"); }},
        Refusal{"added_tokens[1].id: found number 18446744073709551615",
                kCorrupt,
                [](Json& j) {
                  j["added_tokens"][1]["id"] = 18446744073709551615U;
                }},
        Refusal{"added_tokens[1]: found id 11 for 'a', expected 0",
                kCorrupt,
                [](Json& j) { j["added_tokens"][1]["content"] = "a"; }},
        Refusal{"expected each token and each id once",
                kCorrupt,
                [](Json& j) { j["added_tokens"][1]["id"] = 10; }},
        Refusal{"post_processor.special_tokens: found no <s>",
                kCorrupt,
                [](Json& j) {
                  j["post_processor"]["special_tokens"] = Json::object();
                }},
        Refusal{"post_processor.special_tokens.<s>.ids[0]: found string",
                kCorrupt,
                [](Json& j) {
                  j["post_processor"]["special_tokens"]["<s>"]["ids"] = {"x"};
                }},
        Refusal{"post_processor.single: found no Sequence A",
                kCorrupt,
                [](Json& j) { j["post_processor"]["single"].erase(1); }}));

TEST(TokenizerJson, RefusesNestingWithoutEnd) {
  Json json = small();
  Json node = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) {
    node = {{"type", "Sequence"}, {"normalizers", {node}}};
  }
  json["normalizer"] = node;
  expect_error(ErrorCode::kUnsupported, "more than 16 nested", [&] {
    static_cast<void>(parse(json));
  });
}

TEST(TokenizerJson, RefusesWhatIsNoJson) {
  expect_error(ErrorCode::kCorruptData, "found no JSON", [] {
    static_cast<void>(parse_tokenizer("{\"model\": "));
  });
  expect_error(ErrorCode::kCorruptData, "found no JSON", [] {
    static_cast<void>(parse_tokenizer("{\"model\": \"\xFF\"}"));
  });
  expect_error(ErrorCode::kCorruptData, "expected an object", [] {
    static_cast<void>(parse_tokenizer("[1]"));
  });
}

TEST(TokenizerJson, NamesTheFile) {
  const TemporaryDirectory directory;
  expect_error(ErrorCode::kNotFound, "found no tokenizer", [&] {
    static_cast<void>(load_tokenizer(directory.path()));
  });
  directory.add("tokenizer.json", "{}");
  expect_error(ErrorCode::kCorruptData, "tokenizer.json: top level", [&] {
    static_cast<void>(load_tokenizer(directory.path()));
  });
}

// A pre-tokenizer that cannot be run to the end must not hang.
TEST(TokenizerJson, APatternThatExplodesIsAnError) {
  Json json = small();
  json["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", "(a|a)*(a|a)*(a|a)*d"}}},
                           {"behavior", "Isolated"}};
  const Tokenizer tokenizer = parse(json);
  expect_error(ErrorCode::kUnsupported, "stopped at byte", [&] {
    static_cast<void>(tokenizer.encode(std::string(64, 'a') + "xd"));
  });
}

TEST(SmolLm2Tokenizer, GivesTheRecordedPromptIds) {
  const char* directory = std::getenv("NIBBLE_SMOLLM2");
  if (directory == nullptr) {
    GTEST_SKIP() << "NIBBLE_SMOLLM2 does not name a directory of "
                    "SmolLM2-135M-Instruct";
  }
  NIBBLE_REFERENCE_OR_SKIP(path, "reference/smollm2.json");
  const Tokenizer tokenizer = load_tokenizer(directory);
  const Json reference = Json::parse(read_text_file(path));
  for (const Json& prompt : reference.at("prompts")) {
    EXPECT_EQ(tokenizer.encode(prompt.at("text").get<std::string>()),
              prompt.at("ids").get<Ids>());
    EXPECT_EQ(tokenizer.decode(prompt.at("greedy").get<Ids>()),
              prompt.at("greedy_text").get<std::string>());
  }
}

}  // namespace
}  // namespace nibble::text
