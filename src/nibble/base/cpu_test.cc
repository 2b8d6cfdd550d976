#include "nibble/base/cpu.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace nibble {
namespace {

// best_isa() is decided once a process, so each case needs one of its own.
// The exit status is 100 + the set, or the code of the Error.
[[noreturn]] void exit_with_best_isa(const char* allowed) {
  ::setenv("NIBBLE_ISA", allowed, 1);
  try {
    std::exit(100 + static_cast<int>(best_isa()));
  } catch (const Error& error) {
    std::exit(static_cast<int>(error.code()));
  }
}

TEST(Cpu, EverySetIncludesTheOnesBelow) {
  EXPECT_TRUE(cpu_has(Isa::kPortable));
  EXPECT_TRUE(!cpu_has(Isa::kAvx512) || cpu_has(Isa::kAvx2));
  EXPECT_TRUE(!cpu_has_avx512_bf16() || cpu_has(Isa::kAvx512));
}

TEST(CpuDeathTest, TheVariableLimitsTheSet) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(exit_with_best_isa("portable"), testing::ExitedWithCode(100), "");
  const int avx2 = cpu_has(Isa::kAvx2) ? 101 : 100;
  EXPECT_EXIT(exit_with_best_isa("avx2"), testing::ExitedWithCode(avx2), "");
  const int avx512 = cpu_has(Isa::kAvx512) ? 102 : avx2;
  EXPECT_EXIT(
      exit_with_best_isa("avx512"), testing::ExitedWithCode(avx512), "");
  EXPECT_EXIT(exit_with_best_isa(""), testing::ExitedWithCode(avx512), "");
}

TEST(CpuDeathTest, AnUnknownSetIsRefused) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      exit_with_best_isa("sse9"),
      testing::ExitedWithCode(static_cast<int>(ErrorCode::kInvalidArgument)),
      "");
}

TEST(Cpu, SetsHaveNames) {
  EXPECT_EQ(isa_name(Isa::kPortable), "portable");
  EXPECT_EQ(isa_name(Isa::kAvx2), "avx2");
  EXPECT_EQ(isa_name(Isa::kAvx512), "avx512");
}

}  // namespace
}  // namespace nibble
