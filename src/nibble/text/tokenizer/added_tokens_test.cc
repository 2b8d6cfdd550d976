#include "nibble/text/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

namespace nibble::text {
namespace {

using Entry = AddedTokenFinder::Entry;

Entry entry(std::int32_t id, const std::string& text) {
  AddedToken token;
  token.id = id;
  token.content = text;
  return {text, token};
}

// "text" as it is, "#id" for a token.
std::vector<std::string> cut(std::vector<Entry> entries,
                             const std::string& text) {
  const AddedTokenFinder finder(std::move(entries));
  std::vector<std::string> out;
  for (const Section& section : finder.cut(text)) {
    out.push_back(section.token ? "#" + std::to_string(*section.token)
                                : std::string(section.text));
  }
  return out;
}

using Strings = std::vector<std::string>;

TEST(AddedTokens, TheLeftmostThenTheLongestIsTaken) {
  EXPECT_EQ(cut({entry(1, "<a>"), entry(2, "<a><b>"), entry(3, "<b>")},
                "x<a><b><b>y<a>"),
            (Strings{"x", "#2", "#3", "y", "#1"}));
  EXPECT_EQ(cut({entry(1, "ab"), entry(2, "bcd")}, "abcd"),
            (Strings{"#1", "cd"}));
}

TEST(AddedTokens, AShorterSpellingIsFoundWhenTheLongerBreaksOff) {
  EXPECT_EQ(cut({entry(1, "<|a|>"), entry(2, "<|a|>!!")}, "<|a|>!x"),
            (Strings{"#1", "!x"}));
  EXPECT_EQ(cut({entry(1, "aab")}, "aaab"), (Strings{"a", "#1"}));
}

TEST(AddedTokens, NoneMeansOneSection) {
  EXPECT_EQ(cut({}, "text"), Strings{"text"});
  EXPECT_EQ(cut({entry(1, "")}, "text"), Strings{"text"});
  EXPECT_EQ(cut({entry(1, "a")}, ""), Strings{});
}

TEST(AddedTokens, StripTakesWhiteSpaceAlong) {
  Entry left = entry(1, "<l>");
  left.token.lstrip = true;
  Entry right = entry(2, "<r>");
  right.token.rstrip = true;
  EXPECT_EQ(cut({left, right}, "a \u3000<l> b<r>\n\tc"),
            (Strings{"a", "#1", " b", "#2", "c"}));
  // What the token before has taken is not taken again.
  EXPECT_EQ(cut({left, right}, "<r>  <l>"), (Strings{"#2", "#1"}));
}

TEST(AddedTokens, SingleWordsAreNotPartsOfWords) {
  Entry word = entry(1, "cat");
  word.token.single_word = true;
  EXPECT_EQ(cut({word},
                "cat concat cats \u00E9"
                "cat cat."),
            (Strings{"#1",
                     " concat cats \u00E9"
                     "cat ",
                     "#1",
                     "."}));
}

TEST(AddedTokens, TheFirstOfEqualSpellingsCounts) {
  EXPECT_EQ(cut({entry(1, "x"), entry(2, "x")}, "x"), Strings{"#1"});
}

}  // namespace
}  // namespace nibble::text
