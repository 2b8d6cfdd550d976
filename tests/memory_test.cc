// Peak resident memory stays below --memory, in models of a few hundred MB.
// memory_slow_test.cc does the same with tens of gigabytes.

#include <gtest/gtest.h>

#include "peak_memory.h"

namespace nibble {
namespace {

using Json = nlohmann::json;

// Stacks of experts, dense layers, embeddings: 370 MB.
const std::vector<std::string> kStacks = {"--maverick",
                                          "--hidden",
                                          "1024",
                                          "--intermediate",
                                          "2048",
                                          "--heads",
                                          "8",
                                          "--dense-intermediate",
                                          "4096",
                                          "--experts",
                                          "16",
                                          "--vocabulary",
                                          "32768",
                                          "--written",
                                          "1000000"};

class Memory : public ::testing::TestWithParam<const char*> {};

TEST_P(Memory, StaysBelowTheLimit) {
  const ScratchDirectory scratch;
  const std::string source = scratch.file("source");
  make_model(source, kStacks);
  const Json receipt =
      expect_peak_below(source, GetParam(), scratch.file("out"), 64 * kMiB);
  ASSERT_FALSE(receipt.is_null());
  EXPECT_GT(receipt.at("source").at("bytes").get<std::uint64_t>(), 300 * kMiB);
}

INSTANTIATE_TEST_SUITE_P(Recipes,
                         Memory,
                         ::testing::Values("int4", "int8", "fp8-block"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return name;
                         });

// The plan says what would do, and that does.
TEST(Memory, RefusesTooLittleAndNamesTheLeastThatWorks) {
  const ScratchDirectory scratch;
  const std::string source = scratch.file("source");
  make_model(source, kStacks);
  const std::vector<std::string> plan = {
      "quantize", source, "--recipe", "int4", "--dry-run", "--memory"};
  const auto with = [&](const std::string& memory) {
    std::vector<std::string> arguments = plan;
    arguments.push_back(memory);
    return run_nibble(arguments);
  };
  const ProgramResult refused = with("1MiB");
  EXPECT_EQ(refused.status, 2) << refused.error;
  const std::string mark = "--memory ";
  const std::size_t at = refused.error.rfind(mark);
  ASSERT_NE(at, std::string::npos) << refused.error;
  const std::size_t begin = at + mark.size();
  const std::string least = refused.error.substr(
      begin, refused.error.find_first_of(" ,;\n", begin) - begin);
  EXPECT_EQ(with(least).status, 0) << least << ": " << with(least).error;
}

}  // namespace
}  // namespace nibble
