#include "nibble/base/units.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "nibble/base/checked_math.h"

namespace nibble {
namespace {

TEST(ParseSize, KnowsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("1B"), 1u);
  EXPECT_EQ(parse_size("3K"), 3'000u);
  EXPECT_EQ(parse_size("3kb"), 3'000u);
  EXPECT_EQ(parse_size("512MiB"), 512u << 20);
  EXPECT_EQ(parse_size("5GB"), 5'000'000'000u);
  EXPECT_EQ(parse_size("1.5 GiB"), 3u << 29);
  EXPECT_EQ(parse_size("2TiB"), std::uint64_t{2} << 40);
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text : {"",
                           "GB",
                           "-1GB",
                           "0",
                           "4 apples",
                           "4Gib2",
                           "1PB",
                           "nan",
                           "inf",
                           "1e30"}) {
    SCOPED_TRACE(text);
    expect_error(ErrorCode::kInvalidArgument, text, [&] {
      static_cast<void>(parse_size(text));
    });
  }
}

TEST(FormatSize, KeepsThreeDigits) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(712), "712 B");
  EXPECT_EQ(format_size(1536), "1.50 KiB");
  EXPECT_EQ(format_size(std::uint64_t{34} << 20), "34.0 MiB");
  EXPECT_EQ(format_size(std::uint64_t{345} << 20), "345 MiB");
  EXPECT_EQ(format_size(1'299'227'607), "1.21 GiB");
  EXPECT_EQ(format_size(std::uint64_t{3} << 40), "3.00 TiB");
}

TEST(FormatSeconds, ChangesUnitsAsTimesGrow) {
  EXPECT_EQ(format_seconds(0.44), "0.4 s");
  EXPECT_EQ(format_seconds(12.3), "12 s");
  EXPECT_EQ(format_seconds(59.7), "1 min 00 s");
  EXPECT_EQ(format_seconds(200), "3 min 20 s");
  EXPECT_EQ(format_seconds(7'500), "2 h 05 min");
}

TEST(NearestWord, FindsALikelyMisspellingOnly) {
  const std::vector<std::string> words{"group", "scheme", "symmetric"};
  EXPECT_EQ(nearest_word("gruop", words), "group");
  EXPECT_EQ(nearest_word("symetric", words), "symmetric");
  EXPECT_EQ(nearest_word("banana", words), "");
  EXPECT_EQ(nearest_word("x", std::vector<std::string>{}), "");
}

TEST(EditDistance, CountsInsertionsDeletionsAndSubstitutions) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("same", "same"), 0u);
}

TEST(CheckedMath, ReportsOverflow) {
  EXPECT_EQ(checked_multiply<std::uint64_t>(1u << 31, 2), 1ull << 32);
  EXPECT_FALSE(checked_multiply<std::uint64_t>(1ull << 32, 1ull << 32));
  EXPECT_FALSE(checked_multiply<std::int64_t>(1ll << 62, 2));
  EXPECT_FALSE(checked_add<std::uint64_t>(~0ull, 1));
  EXPECT_EQ(checked_add<std::int64_t>(40, 2), 42);
}

TEST(CheckedMath, RoundsUp) {
  EXPECT_EQ(divide_up(0, 8), 0);
  EXPECT_EQ(divide_up(9, 8), 2);
  EXPECT_EQ(divide_up(16, 8), 2);
  EXPECT_EQ(round_up(9, 8), 16);
  EXPECT_EQ(round_up(16, 8), 16);
}

}  // namespace
}  // namespace nibble
