#include "nibble/cli/screen/progress.h"

#include <gtest/gtest.h>

namespace nibble::cli {
namespace {

TEST(ProgressText, HasNoRateBeforeThereIsOne) {
  EXPECT_EQ(progress_text(0, 4096, 0, "B"), "  0 %  0 B of 4.00 KiB");
  EXPECT_EQ(progress_text(2048, 4096, 0.1, "B"), " 50 %  2.00 KiB of 4.00 KiB");
}

TEST(ProgressText, GivesRateAndTimeLeft) {
  EXPECT_EQ(progress_text(1 << 20, 3 << 20, 2, "B"),
            " 33 %  1.00 MiB of 3.00 MiB  512 KiB/s  4.0 s left");
}

TEST(ProgressText, CountsOtherThingsToo) {
  EXPECT_EQ(progress_text(10, 40, 1, "tokens"),
            " 25 %  10 tokens of 40 tokens  10 tokens/s  3.0 s left");
}

TEST(ProgressText, AnUnknownTotalLeavesShareAndTimeOut) {
  EXPECT_EQ(progress_text(2048, 0, 1, "B"), "2.00 KiB  2.00 KiB/s");
}

}  // namespace
}  // namespace nibble::cli
