#include "nibble/cli/common/child.h"

#include <csignal>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/memory_budget.h"

namespace nibble::cli {
namespace {

TEST(RunInChild, GivesWhatTheWorkReturns) {
  const int here = 42;
  EXPECT_EQ(run_in_child([&] {
              return nlohmann::json{{"there", here}};
            }),
            nlohmann::json({{"there", 42}}));
}

TEST(RunInChild, CarriesMoreThanAPipeHolds) {
  const std::string large(1 << 20, 'x');
  EXPECT_EQ(run_in_child([&] { return nlohmann::json(large); }), large);
}

TEST(RunInChild, RethrowsAnErrorWithCodeAndHint) {
  try {
    static_cast<void>(run_in_child([]() -> nlohmann::json {
      fail_with_hint(ErrorCode::kBadRecipe, "do this", "that is wrong");
    }));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadRecipe);
    EXPECT_STREQ(error.what(), "that is wrong");
    EXPECT_EQ(error.hint(), "do this");
  }
}

TEST(RunInChild, NoticesASignal) {
  EXPECT_THROW(static_cast<void>(run_in_child([]() -> nlohmann::json {
                 raise(SIGKILL);
                 return {};
               })),
               Error);
}

TEST(RunInChild, MemoryOfTheWorkIsNotThatOfTheCaller) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const std::size_t before = peak_resident_bytes();
  const nlohmann::json there = run_in_child([]() -> nlohmann::json {
    const std::vector<char> block(kBytes, 1);
    return peak_resident_bytes() + static_cast<std::size_t>(block.back()) - 1;
  });
  EXPECT_GE(there.get<std::size_t>(), kBytes);
  EXPECT_LT(peak_resident_bytes(), before + kBytes / 2);
}

}  // namespace
}  // namespace nibble::cli
