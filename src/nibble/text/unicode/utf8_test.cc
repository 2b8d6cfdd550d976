#include "nibble/text/unicode/utf8.h"

#include <string>

#include <gtest/gtest.h>

#include "nibble/text/unicode/byte_level.h"

namespace nibble::text {
namespace {

TEST(Utf8, ValidTextIsUnchanged) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82 z";
  EXPECT_TRUE(is_valid_utf8(text));
  EXPECT_EQ(to_valid_utf8(text), text);
}

// The examples of the Unicode Standard, chapter 3, "U+FFFD substitution of
// maximal subparts".
TEST(Utf8, EachMaximalInvalidPartBecomesOneReplacement) {
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(to_valid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                          "A"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), r + r + r);  // a surrogate
  EXPECT_EQ(to_valid_utf8("\xF4\x91\x92\x93\xFF"
                          "A"),
            r + r + r + r + r + "A");
  EXPECT_EQ(to_valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                          "A"),
            r + r + r + r + "A");
  EXPECT_EQ(to_valid_utf8("a\xE2\x82"), "a" + r);
}

TEST(Utf8, AssemblerGivesTheSameForEveryCut) {
  const std::string bytes =
      "x\xF0\x9F\x99\x82\xE2\x82y\xC3\xA9\xFF\xED\xA0\x80\xF0\x9F";
  for (std::size_t first = 0; first <= bytes.size(); ++first) {
    for (std::size_t second = first; second <= bytes.size(); ++second) {
      Utf8Assembler assembler;
      std::string out;
      assembler.push(bytes.substr(0, first), out);
      EXPECT_TRUE(is_valid_utf8(out));
      assembler.push(bytes.substr(first, second - first), out);
      EXPECT_TRUE(is_valid_utf8(out));
      assembler.push(bytes.substr(second), out);
      assembler.finish(out);
      EXPECT_EQ(out, to_valid_utf8(bytes)) << first << " " << second;
    }
  }
}

TEST(Utf8, CodePointsSurviveWritingAndReading) {
  for (const char32_t c :
       {0x00U, 0x7FU, 0x80U, 0x7FFU, 0x800U, 0xFFFDU, 0x10000U, 0x10FFFFU}) {
    std::string text;
    append_utf8(c, text);
    EXPECT_TRUE(is_valid_utf8(text));
    std::size_t at = 0;
    EXPECT_EQ(next_code_point(text, at), c);
    EXPECT_EQ(at, text.size());
    EXPECT_EQ(utf8_length(text[0]), text.size());
  }
}

TEST(Utf8, ClassesFollowUnicode) {
  EXPECT_TRUE(is_whitespace(0x3000));
  EXPECT_FALSE(is_whitespace(0x180E));  // was white space until Unicode 6.2
  EXPECT_FALSE(is_whitespace(0x200B));
  EXPECT_TRUE(is_numeric(0x00BD));   // one half
  EXPECT_TRUE(is_numeric(0x0663));   // Arabic-Indic three
  EXPECT_TRUE(is_numeric(0x2167));   // Roman numeral eight
  EXPECT_FALSE(is_numeric(0x4E09));  // the ideograph for three is a letter
  EXPECT_TRUE(is_word('_'));
  EXPECT_TRUE(is_word(0x0301));
  EXPECT_TRUE(is_word(0x24B6));
  EXPECT_FALSE(is_word('-'));
  EXPECT_FALSE(is_word(0x00BD));
}

TEST(ByteLevel, AllBytesComeBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes += static_cast<char>(byte);
  }
  std::string token;
  append_byte_level(bytes, token);
  EXPECT_TRUE(is_valid_utf8(token));
  EXPECT_EQ(from_byte_level(token), bytes);
}

TEST(ByteLevel, SpellsSpaceAndLineFeedAsGpt2Does) {
  std::string token;
  append_byte_level(" \nA", token);
  EXPECT_EQ(token,
            "\u0120\u010A"
            "A");
}

TEST(ByteLevel, OtherCharactersAreNoBytes) {
  EXPECT_EQ(from_byte_level("a b"), std::nullopt);  // the space itself
  EXPECT_EQ(from_byte_level("\u2581"), std::nullopt);
}

}  // namespace
}  // namespace nibble::text
