#include "nibble/cli/screen/exit_code.h"

#include <gtest/gtest.h>

namespace nibble::cli {
namespace {

TEST(ExitCode, FollowsThePromisedTable) {
  EXPECT_EQ(exit_code(ErrorCode::kInvalidArgument), 2);
  EXPECT_EQ(exit_code(ErrorCode::kOverBudget), 2);
  EXPECT_EQ(exit_code(ErrorCode::kCorruptData), 3);
  EXPECT_EQ(exit_code(ErrorCode::kUnsupported), 3);
  EXPECT_EQ(exit_code(ErrorCode::kNotFound), 3);
  EXPECT_EQ(exit_code(ErrorCode::kBadRecipe), 3);
  EXPECT_EQ(exit_code(ErrorCode::kCheckFailed), 4);
  EXPECT_EQ(exit_code(ErrorCode::kIo), 1);
  EXPECT_EQ(exit_code(ErrorCode::kInterrupted), 1);
  EXPECT_EQ(exit_code(ErrorCode::kDevice), 1);
  EXPECT_EQ(exit_code(ErrorCode::kInternal), 1);
}

}  // namespace
}  // namespace nibble::cli
