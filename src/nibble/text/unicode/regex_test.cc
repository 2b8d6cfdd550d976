#include "nibble/text/unicode/regex.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "nibble/text/unicode/pattern.h"

namespace nibble::text {
namespace {

std::vector<std::string> matches(const std::string& pattern,
                                 const std::string& text) {
  std::vector<std::string> found;
  for (const Range& range : Regex(pattern).find_all(text)) {
    found.push_back(text.substr(range.begin, range.end - range.begin));
  }
  return found;
}

using Strings = std::vector<std::string>;

TEST(Regex, ClassesAreUnicode) {
  EXPECT_EQ(matches(R"(\p{L}+)", "na\u00EFve \u65E5\u672C 1"),
            (Strings{"na\u00EFve", "\u65E5\u672C"}));
  EXPECT_EQ(matches(R"(\s+)", "a\u00A0\u3000b\u0085"),
            (Strings{"\u00A0\u3000", "\u0085"}));
}

TEST(Regex, MongolianVowelSeparatorIsNoWhiteSpace) {
  EXPECT_EQ(matches(R"(\s)", "a\u180Eb"), Strings{});
  EXPECT_EQ(matches(R"([^\s\p{L}]+)", "a\u180Eb"), Strings{"\u180E"});
}

TEST(Regex, CaseFoldingReachesTheLongS) {
  EXPECT_EQ(matches("(?i:'s)", "it'\u017F"), Strings{"'\u017F"});
}

TEST(Regex, EmptyMatchesAdvanceByCharacters) {
  const std::vector<Range> expected = {{0, 0}, {2, 3}, {5, 5}};
  EXPECT_EQ(Regex("x*").find_all("\u00E9x\u00E9"), expected);
}

TEST(Regex, LookAroundSeesTheTextBeforeTheMatch) {
  EXPECT_EQ(matches("(?<=a)b", "abb"), Strings{"b"});
  EXPECT_EQ(matches(R"(\s+(?!\S))", "a   b"), Strings{"  "});
}

TEST(Regex, LongTextsTakeLinearTime) {
  const std::string spaces(1 << 20, ' ');
  const Regex pattern(R"(\s*[\r\n]+|\s+(?!\S)|\s+)");
  EXPECT_EQ(pattern.find_all(spaces).size(), 1U);
  EXPECT_EQ(pattern.find_all(spaces + "x").size(), 2U);
}

TEST(Regex, RefusesWhatItCannotCompile) {
  expect_error(ErrorCode::kUnsupported, "pattern 'a(b': at byte 3", [] {
    Regex("a(b");
  });
  expect_error(ErrorCode::kUnsupported, "pattern", [] {
    Regex("\\C");  // would split characters
  });
  expect_error(ErrorCode::kUnsupported, "found 65537 bytes", [] {
    Regex(std::string((1 << 16) + 1, 'a'));
  });
}

TEST(Regex, RefusesConstructsWithAnotherMeaning) {
  for (const char* pattern : {R"([\p{L}&&[^\p{Han}]])", R"(\h+)", "(?m:a.b)"}) {
    SCOPED_TRACE(pattern);
    expect_error(ErrorCode::kUnsupported, "expected none of", [&] {
      Regex{std::string(pattern)};
    });
  }
}

TEST(Regex, GivesUpOnAPatternThatExplodes) {
  const Regex pattern("(a|a)*(a|a)*(a|a)*d");
  expect_error(ErrorCode::kUnsupported, "stopped at byte 0", [&] {
    static_cast<void>(pattern.find_all(std::string(64, 'a') + "xd"));
  });
}

TEST(Pattern, LiteralsAreNotRegularExpressions) {
  const Pattern dot = Pattern::literal(".");
  EXPECT_EQ(dot.find_all("a.b").size(), 1U);
  EXPECT_EQ(dot.replace_all("a.b.", "--"), "a--b--");
  EXPECT_TRUE(Pattern::literal("").find_all("ab").empty());
}

TEST(Pattern, ReplacementTextIsTakenLiterally) {
  EXPECT_EQ(Pattern::regex("(b)").replace_all("abc", "$1\\1"), "a$1\\1c");
}

}  // namespace
}  // namespace nibble::text
