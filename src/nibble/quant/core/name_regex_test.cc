#include "nibble/quant/core/name_regex.h"

#include <string>

#include <gtest/gtest.h>

namespace nibble::quant {
namespace {

NameRegex regex(std::string_view pattern) {
  return NameRegex(pattern, ErrorCode::kBadRecipe);
}

TEST(NameRegex, FitsTheWholeNameOrItsStart) {
  EXPECT_TRUE(regex("a.*c").fits_whole("abc"));
  EXPECT_FALSE(regex("a.*c").fits_whole("abcd"));
  EXPECT_TRUE(regex("a.*c").fits_start("abcd"));
  EXPECT_FALSE(regex("b").fits_start("abc"));
  EXPECT_TRUE(regex("").fits_whole(""));
  EXPECT_FALSE(regex("").fits_whole("a"));
}

TEST(NameRegex, AlternativesAreTriedUntilTheWholeNameFits) {
  EXPECT_TRUE(regex("q|q_proj").fits_whole("q_proj"));
  EXPECT_TRUE(regex(R"(layers\.[0-9]+?\.mlp)").fits_whole("layers.12.mlp"));
}

TEST(NameRegex, AMalformedPatternIsRefusedWithThePlace) {
  try {
    regex("abc(");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadRecipe);
    EXPECT_NE(std::string(error.what()).find("at character 5"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(NameRegex("[", ErrorCode::kCorruptData), Error);
  EXPECT_THROW(regex(std::string(5000, 'a')), Error);
}

TEST(NameRegex, APatternThatExplodesIsStopped) {
  const NameRegex bad = regex("(a+)+b");
  // The name has a b, or the engine would see at once that none can follow.
  EXPECT_THROW((void)bad.fits_whole(std::string(40, 'a') + "cb"), Error);
}

}  // namespace
}  // namespace nibble::quant
