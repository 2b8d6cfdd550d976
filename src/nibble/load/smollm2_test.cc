// A published chat model of 135 M parameters, when its directory is at hand:
// NIBBLE_SMOLLM2 names it (SmolLM2-135M-Instruct, bf16). What another
// implementation computes with it comes from the reference data.

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/files/json.h"
#include "nibble/load/load_model.h"
#include "nibble/load/model_running.h"
#include "reference_data.h"

namespace nibble::load {
namespace {

TEST(SmolLm2, PerplexityAndAnswersAreThoseOfAnotherImplementation) {
  const char* directory = std::getenv("NIBBLE_SMOLLM2");
  if (directory == nullptr) {
    GTEST_SKIP() << "NIBBLE_SMOLLM2 does not name a directory of "
                    "SmolLM2-135M-Instruct";
  }
  NIBBLE_REFERENCE_OR_SKIP(path, "reference/smollm2.json");
  const nlohmann::json reference = read_json_object(path);
  const auto model =
      load_model(open_checkpoint(directory), {}, backend::cpu_backend());

  for (const nlohmann::json& prompt : reference["prompts"]) {
    const auto expected = prompt["greedy"].get<std::vector<int>>();
    EXPECT_EQ(
        greedy(*model, prompt["ids"].get<std::vector<int>>(), expected.size()),
        expected)
        << prompt["messages"];
  }

  constexpr std::size_t kWindow = 512;
  constexpr std::size_t kWindows = 40;
  const auto ids = reference["eval_ids"].get<std::vector<std::int32_t>>();
  ASSERT_GE(ids.size(), kWindow * kWindows);
  double sum = 0;
  std::chrono::duration<double> seconds{0};
  for (std::size_t i = 0; i < kWindows; ++i) {
    const auto window = std::span(ids).subspan(i * kWindow, kWindow);
    const auto start = std::chrono::steady_clock::now();
    const Tensor logits = logits_of(*model, window);
    seconds += std::chrono::steady_clock::now() - start;
    sum += mean_nll(logits.view(), window);
  }
  const double perplexity = std::exp(sum / double{kWindows});
  const double expected = reference["hf"]["perplexity"].get<double>();
  RecordProperty("perplexity", std::to_string(perplexity));
  RecordProperty("tokens_per_second",
                 std::to_string(kWindow * kWindows / seconds.count()));
  EXPECT_NEAR(perplexity, expected, 0.002 * expected);
}

}  // namespace
}  // namespace nibble::load
