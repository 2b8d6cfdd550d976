#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program.h"

namespace nibble {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// What the program itself, its libraries and the plan may take beside
// --memory.
inline constexpr std::uint64_t kBesideBudget = 64 * kMiB;

// Makes a model by tools/make_random_llama.cc; --written keeps it small on the
// disk, while a reader sees all of it.
inline void make_model(const std::string& directory,
                       std::vector<std::string> options) {
  options.insert(options.begin(), directory);
  const ProgramResult made = run_program(NIBBLE_MAKE_RANDOM_LLAMA, options);
  ASSERT_EQ(made.status, 0) << made.error;
}

// Quantizes and compares the process's peak, mapped pages included, with the
// limit, and the peak that the receipt states with the measured one. Returns
// the receipt.
inline nlohmann::json expect_peak_below(const std::string& source,
                                        const std::string& recipe,
                                        const std::string& output,
                                        std::uint64_t budget_bytes) {
  const ProgramResult run =
      run_nibble({"quantize",
                  source,
                  "--recipe",
                  recipe,
                  "-o",
                  output,
                  "--threads",
                  "2",
                  "--memory",
                  std::to_string(budget_bytes / kMiB) + "MiB",
                  "--quiet"});
  if (run.status != 0) {
    ADD_FAILURE() << run.error;
    return nullptr;
  }
  EXPECT_LT(run.peak_rss_bytes, budget_bytes + kBesideBudget);
  nlohmann::json receipt =
      nlohmann::json::parse(content_of(output + "/nibble.json"));
  const auto stated = receipt.at("peak_rss_bytes").get<std::uint64_t>();
  // The receipt is written before the process ends.
  EXPECT_LE(stated, run.peak_rss_bytes + kMiB);
  EXPECT_GE(stated, run.peak_rss_bytes - run.peak_rss_bytes / 10);
  // Figures for whoever reads the log of the long tests.
  ::testing::Test::RecordProperty("peak_rss_mib",
                                  std::to_string(run.peak_rss_bytes / kMiB));
  std::cout << "peak " << run.peak_rss_bytes / kMiB << " MiB of "
            << budget_bytes / kMiB << " MiB\n";
  return receipt;
}

}  // namespace nibble
