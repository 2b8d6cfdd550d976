#include "nibble/text/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

namespace nibble::text {
namespace {

using Strings = std::vector<std::string>;
using Behavior = PreTokenizer::Behavior;

Strings cut(PreTokenizer::Step step,
            const std::string& text,
            bool starts_input = true) {
  const Pieces pieces =
      PreTokenizer({std::move(step)}).apply(text, starts_input);
  Strings out;
  for (const Range& range : pieces.ranges) {
    out.push_back(pieces.text.substr(range.begin, range.end - range.begin));
  }
  return out;
}

PreTokenizer::Split split_at_dash(Behavior behavior, bool invert = false) {
  return {Pattern::literal("-"), behavior, invert};
}

// The example of the tokenizers library's documentation.
TEST(Split, EveryBehaviorKeepsWhatItSays) {
  const std::string text = "the-final--countdown";
  EXPECT_EQ(cut(split_at_dash(Behavior::kRemoved), text),
            (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(cut(split_at_dash(Behavior::kIsolated), text),
            (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(cut(split_at_dash(Behavior::kMergedWithPrevious), text),
            (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(cut(split_at_dash(Behavior::kMergedWithNext), text),
            (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(cut(split_at_dash(Behavior::kContiguous), text),
            (Strings{"the", "-", "final", "--", "countdown"}));
}

TEST(Split, InvertedCutsOutWhatDoesNotMatch) {
  EXPECT_EQ(cut(split_at_dash(Behavior::kRemoved, true), "a--b-"),
            (Strings{"-", "-", "-"}));
  EXPECT_EQ(cut(split_at_dash(Behavior::kMergedWithPrevious, true), "a-b-"),
            (Strings{"a", "-b", "-"}));
}

TEST(Split, MatchesAtTheEdgesStandAlone) {
  EXPECT_EQ(cut(split_at_dash(Behavior::kMergedWithPrevious), "-a"),
            (Strings{"-", "a"}));
  EXPECT_EQ(cut(split_at_dash(Behavior::kMergedWithNext), "a-"),
            (Strings{"a", "-"}));
}

TEST(Split, EmptyMatchesMakeNoPieces) {
  EXPECT_EQ(
      cut(PreTokenizer::Split{Pattern::regex("(?=B)"), Behavior::kIsolated},
          "aBcB"),
      (Strings{"a", "Bc", "B"}));
}

TEST(Digits, AreAloneOrInRuns) {
  const std::string text = "a12\u0663 b";
  EXPECT_EQ(cut(PreTokenizer::Digits{true}, text),
            (Strings{"a", "1", "2", "\u0663", " b"}));
  EXPECT_EQ(cut(PreTokenizer::Digits{false}, text),
            (Strings{"a", "12\u0663", " b"}));
}

TEST(ByteLevelPieces, FollowGpt2) {
  EXPECT_EQ(
      cut(PreTokenizer::ByteLevel{false, true}, "We'll go  12!\n"),
      (Strings{"We", "'ll", "\u0120go", "\u0120", "\u012012", "!", "\u010A"}));
  EXPECT_EQ(cut(PreTokenizer::ByteLevel{false, false}, "a b"),
            Strings{"a\u0120"
                    "b"});
}

TEST(ByteLevelPieces, GetASpaceInFrontWhereAsked) {
  EXPECT_EQ(cut(PreTokenizer::ByteLevel{true, true}, "a"),
            Strings{"\u0120"
                    "a"});
  EXPECT_EQ(cut(PreTokenizer::ByteLevel{true, true}, " a"),
            Strings{"\u0120"
                    "a"});
  EXPECT_EQ(cut(PreTokenizer::ByteLevel{true, true}, ""), Strings{});
}

PreTokenizer::Metaspace metaspace(PreTokenizer::Metaspace::Prepend prepend,
                                  bool split = true) {
  return {"\u2581", prepend, split};
}

TEST(Metaspace, MarksAndCutsAtSpaces) {
  using Prepend = PreTokenizer::Metaspace::Prepend;
  EXPECT_EQ(cut(metaspace(Prepend::kAlways), "a  b"),
            (Strings{"\u2581"
                     "a",
                     "\u2581",
                     "\u2581"
                     "b"}));
  EXPECT_EQ(cut(metaspace(Prepend::kNever), "a b"),
            (Strings{"a",
                     "\u2581"
                     "b"}));
  EXPECT_EQ(cut(metaspace(Prepend::kAlways, false), "a b"),
            Strings{"\u2581"
                    "a\u2581"
                    "b"});
  EXPECT_EQ(cut(metaspace(Prepend::kAlways), " a"),
            Strings{"\u2581"
                    "a"});
}

TEST(Metaspace, FirstMarksOnlyTheStartOfTheInput) {
  using Prepend = PreTokenizer::Metaspace::Prepend;
  EXPECT_EQ(cut(metaspace(Prepend::kFirst), "a"),
            Strings{"\u2581"
                    "a"});
  EXPECT_EQ(cut(metaspace(Prepend::kFirst), "a", false), Strings{"a"});
}

TEST(PreTokenizer, StepsWorkOnThePiecesOfTheStepBefore) {
  const PreTokenizer both(
      {PreTokenizer::Digits{true}, PreTokenizer::ByteLevel{false, true}});
  const Pieces pieces = both.apply("x1 y", true);
  ASSERT_EQ(pieces.ranges.size(), 3U);
  EXPECT_EQ(pieces.text, "x1\u0120y");
}

}  // namespace
}  // namespace nibble::text
