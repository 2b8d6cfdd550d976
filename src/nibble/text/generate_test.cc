#include "nibble/text/generate.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble::text {
namespace {

using Ids = std::vector<std::int32_t>;

// Letters a to j are 0 to 9; 10 is the special end token, 11 and 12 the first
// and second byte of U+00E9.
Tokenizer letters() {
  return parse_tokenizer(R"({
    "added_tokens": [{"id": 10, "content": "<end>", "special": true}],
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "merges": [],
              "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5,
                        "g": 6, "h": 7, "i": 8, "j": 9, "Ã": 11, "©": 12}}})");
}

// A model that says script, token by token, whatever it is given.
class Script {
 public:
  explicit Script(Ids script) : script_(std::move(script)) {}

  GenerateResult run(const Ids& prompt, const GenerateOptions& options) {
    const auto run = [&](std::span<const std::int32_t> ids,
                         std::span<float> logits) {
      calls.emplace_back(ids.begin(), ids.end());
      positions_ += static_cast<std::int64_t>(ids.size());
      EXPECT_LE(positions_, max_positions);
      std::fill(logits.begin(), logits.end(), 0.0F);
      const auto next = static_cast<std::size_t>(positions_) - prompt.size();
      if (next < script_.size()) {
        logits[static_cast<std::size_t>(script_[next])] = 1;
      }
    };
    const auto on_text = [&](std::string_view text) {
      pieces.emplace_back(text);
    };
    return generate(LanguageModel{13, max_positions, {10}, run},
                    tokenizer_,
                    prompt,
                    options,
                    on_text);
  }

  std::int64_t max_positions = 100;
  std::vector<Ids> calls;
  std::vector<std::string> pieces;

 private:
  Ids script_;
  Tokenizer tokenizer_ = letters();
  std::int64_t positions_ = 0;
};

using Strings = std::vector<std::string>;

TEST(Generate, EndsWithTheEndToken) {
  Script script({1, 2, 10, 3});
  const GenerateResult result = script.run({0, 0}, {});
  EXPECT_EQ(result.ids, (Ids{1, 2, 10}));
  EXPECT_EQ(result.text, "bc");
  EXPECT_EQ(result.stop_reason, StopReason::kEos);
  EXPECT_EQ(result.prompt_tokens, 2);
  EXPECT_EQ(result.generated_tokens, 3);
  EXPECT_EQ(script.pieces, (Strings{"b", "c"}));
  EXPECT_GE(result.prompt_seconds, 0);
  // The prompt at once, then each token but the last.
  EXPECT_EQ(script.calls, (std::vector<Ids>{{0, 0}, {1}, {2}}));
}

TEST(Generate, GoesOnBehindTheEndTokenWhereAsked) {
  Script script({1, 10, 2});
  GenerateOptions options;
  options.ignore_eos = true;
  options.max_tokens = 3;
  const GenerateResult result = script.run({0}, options);
  EXPECT_EQ(result.ids, (Ids{1, 10, 2}));
  EXPECT_EQ(result.text, "bc");
  EXPECT_EQ(result.stop_reason, StopReason::kLength);
}

TEST(Generate, StopsAtTheLength) {
  Script script({1, 2, 3});
  GenerateOptions options;
  options.max_tokens = 1;
  EXPECT_EQ(script.run({0}, options).ids, Ids{1});
  EXPECT_EQ(script.calls.size(), 1U);  // nothing runs for no one
}

TEST(Generate, RunsThePromptInChunks) {
  Script script({1, 10});
  GenerateOptions options;
  options.prompt_chunk = 2;
  EXPECT_EQ(script.run({0, 1, 2, 3, 4}, options).ids, (Ids{1, 10}));
  EXPECT_EQ(script.calls, (std::vector<Ids>{{0, 1}, {2, 3}, {4}, {1}}));
}

TEST(Generate, StopsWhenPositionsAreUsedUp) {
  Script script({1, 2, 3, 4, 5});
  script.max_positions = 4;
  const GenerateResult result = script.run({0, 0}, {});
  // Two positions are left for run tokens; the third needs no own.
  EXPECT_EQ(result.ids, (Ids{1, 2, 3}));
  EXPECT_EQ(result.stop_reason, StopReason::kContext);
}

TEST(Generate, APromptThatFillsAllPositionsGivesOneToken) {
  Script script({1, 2});
  script.max_positions = 2;
  const GenerateResult result = script.run({0, 0}, {});
  EXPECT_EQ(result.ids, Ids{1});
  EXPECT_EQ(result.stop_reason, StopReason::kContext);
}

TEST(Generate, FindsStopTextAcrossTokens) {
  Script script({0, 1, 2, 3, 4});
  GenerateOptions options;
  options.stop = {"cd"};
  const GenerateResult result = script.run({0}, options);
  EXPECT_EQ(result.text, "ab");
  EXPECT_EQ(result.ids, (Ids{0, 1, 2, 3}));
  EXPECT_EQ(result.stop_reason, StopReason::kStop);
  EXPECT_EQ(script.pieces, (Strings{"a", "b"}));
}

TEST(Generate, HeldTextComesWhenNoStopFollows) {
  Script script({1, 2, 10});
  GenerateOptions options;
  options.stop = {"cd"};
  const GenerateResult result = script.run({0}, options);
  EXPECT_EQ(result.text, "bc");
  EXPECT_EQ(result.stop_reason, StopReason::kEos);
  EXPECT_EQ(script.pieces, (Strings{"b", "c"}));
}

TEST(Generate, StopIdsEndWithoutTheirText) {
  Script script({1, 2, 3});
  GenerateOptions options;
  options.stop_ids = {2};
  const GenerateResult result = script.run({0}, options);
  EXPECT_EQ(result.ids, (Ids{1, 2}));
  EXPECT_EQ(result.text, "b");
  EXPECT_EQ(result.stop_reason, StopReason::kStop);
}

TEST(Generate, PiecesAreCompleteCharacters) {
  Script script({1, 11, 12, 11, 10});
  const GenerateResult result = script.run({0}, {});
  EXPECT_EQ(script.pieces, (Strings{"b", "\u00E9", "\uFFFD"}));
  EXPECT_EQ(result.text, "b\u00E9\uFFFD");
}

TEST(Generate, AnExceptionOfTheCallerEndsTheRun) {
  const Tokenizer tokenizer = letters();
  const auto run = [](std::span<const std::int32_t>, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0F);
  };
  const auto stop = [](std::string_view) {
    fail(ErrorCode::kInterrupted, "enough");
  };
  expect_error(ErrorCode::kInterrupted, "enough", [&] {
    static_cast<void>(generate(LanguageModel{13, 9, {}, run},
                               tokenizer,
                               Ids{0},
                               GenerateOptions{},
                               stop));
  });
}

TEST(Generate, ImpossibleRequestsAreRefused) {
  const auto refuses =
      [](const char* part, const Ids& prompt, const GenerateOptions& options) {
        Script script({1});
        script.max_positions = 3;
        expect_error(ErrorCode::kInvalidArgument, part, [&] {
          static_cast<void>(script.run(prompt, options));
        });
        EXPECT_TRUE(script.calls.empty());
      };
  refuses("prompt: found no tokens", {}, {});
  refuses("prompt: found 4 tokens, expected at most", {0, 0, 0, 0}, {});
  refuses("prompt: found id 13 at 1, expected 0 to 12", {0, 13}, {});
  refuses("prompt: found id -1 at 0", {-1}, {});
  GenerateOptions none;
  none.max_tokens = 0;
  refuses("max-tokens: found 0", {0}, none);
  GenerateOptions chunk;
  chunk.prompt_chunk = 0;
  refuses("prompt chunk: found 0", {0}, chunk);
  GenerateOptions stop;
  stop.stop = {""};
  refuses("stop: found an empty string", {0}, stop);
  GenerateOptions cold;
  cold.sampling.temperature = -1;
  refuses("temperature", {0}, cold);
}

TEST(StopReason, HasTheNamesOfTheCommandLine) {
  EXPECT_EQ(to_string(StopReason::kEos), "eos");
  EXPECT_EQ(to_string(StopReason::kLength), "length");
  EXPECT_EQ(to_string(StopReason::kStop), "stop");
  EXPECT_EQ(to_string(StopReason::kContext), "context");
}

}  // namespace
}  // namespace nibble::text
