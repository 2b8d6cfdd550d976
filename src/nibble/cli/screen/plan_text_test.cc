#include "nibble/cli/screen/plan_text.h"

#include <gtest/gtest.h>

namespace nibble::cli {
namespace {

TEST(FoldNumbers, RunsStepsAndLists) {
  EXPECT_EQ(fold_numbers({}), "");
  EXPECT_EQ(fold_numbers({7}), "7");
  EXPECT_EQ(fold_numbers({0, 1}), "0-1");
  EXPECT_EQ(fold_numbers({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(fold_numbers({1, 3, 5, 7}), "1-7 step 2");
  EXPECT_EQ(fold_numbers({1, 3}), "1, 3");
  EXPECT_EQ(fold_numbers({0, 3, 5, 6, 7}), "0, 3, 5-7");
}

}  // namespace
}  // namespace nibble::cli
