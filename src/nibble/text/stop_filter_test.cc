#include "nibble/text/stop_filter.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble::text {
namespace {

TEST(StopFilter, LetsTextThroughWithoutStops) {
  StopFilter filter({});
  EXPECT_EQ(filter.push("abc"), "abc");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, HoldsBackWhatMayBecomeAStop) {
  StopFilter filter({"STOP"});
  EXPECT_EQ(filter.push("aS"), "a");
  EXPECT_EQ(filter.push("T"), "");
  EXPECT_EQ(filter.push("x"), "STx");
  EXPECT_EQ(filter.push("STO"), "");
  EXPECT_EQ(filter.push("Pmore"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("x"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, WhatIsHeldComesAtTheEnd) {
  StopFilter filter({"STOP"});
  EXPECT_EQ(filter.push("aST"), "a");
  EXPECT_EQ(filter.finish(), "ST");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopFilter, OverlappingBeginningsAreFound) {
  StopFilter filter({"aab"});
  EXPECT_EQ(filter.push("aa"), "");
  EXPECT_EQ(filter.push("a"), "a");
  EXPECT_EQ(filter.push("b"), "");
  EXPECT_TRUE(filter.stopped());
}

// The same text and end, wherever the portions are cut.
TEST(StopFilter, DoesNotDependOnPortions) {
  const std::string text = "xabcyab";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    StopFilter filter({"cy", "abcy", "b"});
    std::string out = filter.push(text.substr(0, cut));
    out += filter.push(text.substr(cut));
    out += filter.finish();
    EXPECT_EQ(out, "xa") << cut;
    EXPECT_TRUE(filter.stopped());
  }
}

TEST(StopFilter, OfStopsCompleteTogetherTheLongestCounts) {
  StopFilter filter({"c", "abc"});
  EXPECT_EQ(filter.push("xabc"), "x");
}

TEST(StopFilter, RefusesAnEmptyStop) {
  expect_error(ErrorCode::kInvalidArgument, "stop: found an empty string", [] {
    StopFilter({"a", ""});
  });
}

}  // namespace
}  // namespace nibble::text
