// Peak resident memory with checkpoints as large as they come. The sources
// are mostly holes, which readers see as zeros; the outputs take up to 13 GB of
// disk.

#include <gtest/gtest.h>

#include "peak_memory.h"

namespace nibble {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kBudget = 512 * kMiB;

std::uint64_t source_bytes(const Json& receipt) {
  return receipt.at("source").at("bytes").get<std::uint64_t>();
}

// Llama-4-Maverick's own shapes: 128 experts of 5120 x 16384 in one stack of
// 21 GB.
TEST(MemorySlow, HoldsForTheExpertsOfMaverick) {
  const ScratchDirectory scratch;
  const std::string source = scratch.file("source");
  make_model(source, {"--maverick", "--written", "100000000"});
  const Json receipt =
      expect_peak_below(source, "int4", scratch.file("out"), kBudget);
  ASSERT_FALSE(receipt.is_null());
  EXPECT_GT(source_bytes(receipt), std::uint64_t{35'000'000'000});
}

TEST(MemorySlow, HoldsForEightBits) {
  const ScratchDirectory scratch;
  const std::string source = scratch.file("source");
  make_model(source,
             {"--maverick", "--experts", "32", "--written", "100000000"});
  for (const char* recipe : {"int8", "fp8-block"}) {
    const std::string output = scratch.file(recipe);
    EXPECT_FALSE(expect_peak_below(source, recipe, output, kBudget).is_null());
    std::filesystem::remove_all(output);
  }
}

// One table of 202048 x 5120, reached by a rule.
TEST(MemorySlow, HoldsForOneHugeEmbedding) {
  const ScratchDirectory scratch;
  const std::string source = scratch.file("source");
  make_model(source,
             {"--layers",
              "1",
              "--hidden",
              "5120",
              "--intermediate",
              "5120",
              "--heads",
              "40",
              "--kv-heads",
              "8",
              "--vocabulary",
              "202048",
              "--written",
              "100000000"});
  const std::string recipe = R"({"version": 1, "rules": [
      {"match": ["*.embed_tokens", "lm_head"], "scheme": "int8",
       "force": true},
      {"match": "*", "scheme": "int4"}]})";
  const Json receipt =
      expect_peak_below(source, recipe, scratch.file("out"), kBudget);
  ASSERT_FALSE(receipt.is_null());
  EXPECT_GT(source_bytes(receipt), std::uint64_t{4'000'000'000});
}

// As many small matrices as a config may have: 21,000 tensors of the source,
// most of them stacks, become more than 120,000.
TEST(MemorySlow, HoldsForFortyThousandMatrices) {
  const ScratchDirectory scratch;
  const std::string source = scratch.file("source");
  make_model(source,
             {"--maverick",
              "--layers",
              "2048",
              "--hidden",
              "128",
              "--intermediate",
              "128",
              "--dense-intermediate",
              "128",
              "--experts",
              "9",
              "--heads",
              "2",
              "--kv-heads",
              "2",
              "--vocabulary",
              "512"});
  const Json receipt =
      expect_peak_below(source, "int4", scratch.file("out"), kBudget);
  ASSERT_FALSE(receipt.is_null());
  std::size_t matrices = 0;
  for (const Json& tensor : receipt.at("tensors")) {
    matrices += tensor.contains("layers") ? tensor.at("layers").size() : 1;
  }
  EXPECT_GE(matrices, 40'000U);
}

}  // namespace
}  // namespace nibble
