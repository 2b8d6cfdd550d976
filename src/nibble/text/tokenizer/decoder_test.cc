#include "nibble/text/tokenizer/decoder.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "nibble/text/unicode/utf8.h"

namespace nibble::text {
namespace {

using Strings = std::vector<std::string>;

// What each token and the end give.
Strings stream(const Decoder& decoder, const Strings& tokens) {
  DecodeStream stream(decoder);
  Strings out;
  for (const std::string& token : tokens) {
    out.push_back(stream.push(token));
    EXPECT_TRUE(is_valid_utf8(out.back()));
  }
  out.push_back(stream.finish());
  return out;
}

std::string decode(const Decoder& decoder, const Strings& tokens) {
  std::string text;
  for (const std::string& piece : stream(decoder, tokens)) {
    text += piece;
  }
  return text;
}

const Decoder kByteLevel({Decoder::ByteLevel{}});

Decoder llama2() {
  return Decoder({Decoder::Replace{Pattern::literal("\u2581"), " "},
                  Decoder::ByteFallback{},
                  Decoder::Fuse{},
                  Decoder::Strip{" ", 1, 0}});
}

TEST(Decoder, WithoutStepsJoinsWithSpaces) {
  EXPECT_EQ(stream(Decoder(), {"a", "b", "c"}), (Strings{"a", " b", " c", ""}));
}

TEST(ByteLevelDecoder, HoldsCharactersBackUntilTheyAreComplete) {
  // U+1F642 is F0 9F 99 82.
  EXPECT_EQ(stream(kByteLevel, {"a\u00F0", "\u0141\u013B", "\u0124", "b"}),
            (Strings{"a", "", "\U0001F642", "b", ""}));
}

TEST(ByteLevelDecoder, ReplacesWhatNeverBecomesACharacter) {
  EXPECT_EQ(stream(kByteLevel, {"\u00F0", "a"}), (Strings{"", "\uFFFDa", ""}));
  EXPECT_EQ(stream(kByteLevel, {"a\u00F0"}), (Strings{"a", "\uFFFD"}));
}

TEST(ByteLevelDecoder, TakesOtherTokensAsText) {
  EXPECT_EQ(decode(kByteLevel,
                   {"\u0120"
                    "a",
                    "<| x |>\u2581"}),
            " a<| x |>\u2581");
}

TEST(Llama2Decoder, TurnsMarksAndBytesIntoText) {
  EXPECT_EQ(decode(llama2(),
                   {"\u2581Hi", "\u2581", "<0xE2>", "<0x82>", "<0xAC>", "!"}),
            "Hi \u20AC!");
}

TEST(Llama2Decoder, StripsOneSpaceOfTheWholeText) {
  EXPECT_EQ(stream(llama2(),
                   {"\u2581",
                    "\u2581"
                    "a"}),
            (Strings{"", " a", ""}));
  EXPECT_EQ(stream(llama2(),
                   {"a",
                    "\u2581"
                    "b"}),
            (Strings{"a", " b", ""}));
}

TEST(Llama2Decoder, KeepsTheFirstSpaceOfAContinuation) {
  const Decoder decoder = llama2();
  DecodeStream stream(decoder, /*continues=*/true);
  EXPECT_EQ(stream.push("\u2581"
                        "a"),
            " a");
  const Decoder metaspace({Decoder::Metaspace{"\u2581", true}});
  EXPECT_EQ(DecodeStream(metaspace, true)
                .push("\u2581"
                      "a"),
            " a");
  EXPECT_EQ(DecodeStream(Decoder(), true).push("a"), " a");
}

TEST(Llama2Decoder, ReplacesEachByteOfAnInvalidRun) {
  EXPECT_EQ(stream(llama2(), {"<0xE2>", "<0x82>", "x"}),
            (Strings{"", "", "\uFFFD\uFFFDx", ""}));
  EXPECT_EQ(stream(llama2(), {"x", "<0xE2>"}), (Strings{"x", "", "\uFFFD"}));
}

TEST(ByteFallbackDecoder, LeavesOtherTokensAlone) {
  const Decoder decoder({Decoder::ByteFallback{}, Decoder::Fuse{}});
  EXPECT_EQ(decode(decoder, {"<0xZZ>", "<0x41", "<0x41>", "<0x4>"}),
            "<0xZZ><0x41A<0x4>");
}

TEST(StripDecoder, WorksOnEachTokenUntilTheyAreFused) {
  const Decoder each({Decoder::Strip{"_", 1, 2}});
  EXPECT_EQ(decode(each, {"__a___", "_b_"}), "_a_b");
  EXPECT_EQ(decode(each, {"_", "__"}), "");
}

TEST(StripDecoder, HoldsBackWhatMayBeTheEndOfFusedText) {
  const Decoder fused({Decoder::Fuse{}, Decoder::Strip{"_", 2, 1}});
  EXPECT_EQ(stream(fused, {"_", "_", "_a_", "b_", ""}),
            (Strings{"", "", "_a", "_b", "", ""}));
}

TEST(MetaspaceDecoder, DropsTheFirstMarkOnlyWhereOneWasAdded) {
  EXPECT_EQ(decode(Decoder({Decoder::Metaspace{"\u2581", true}}),
                   {"\u2581"
                    "a",
                    "\u2581"
                    "b"}),
            "a b");
  EXPECT_EQ(decode(Decoder({Decoder::Metaspace{"\u2581", false}}),
                   {"\u2581"
                    "a",
                    "\u2581"
                    "b"}),
            " a b");
}

TEST(Decoder, RefusesStepsThatNeedTokensBehindAFuse) {
  expect_error(ErrorCode::kUnsupported, "behind Fuse or ByteLevel", [] {
    Decoder({Decoder::Fuse{}, Decoder::ByteFallback{}});
  });
  expect_error(ErrorCode::kUnsupported, "behind Fuse or ByteLevel", [] {
    Decoder(
        {Decoder::ByteLevel{}, Decoder::Replace{Pattern::literal("a"), "b"}});
  });
}

}  // namespace
}  // namespace nibble::text
