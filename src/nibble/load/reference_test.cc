// Logits and continuations of the bundled models against those of another
// implementation (float32 arithmetic on the same weights), tests/data.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/backend/cpu/cpu_backend.h"
#include "nibble/base/cpu.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/load/load_model.h"
#include "nibble/load/model_running.h"
#include "reference_data.h"

namespace nibble::load {
namespace {

namespace fs = std::filesystem;

// Sums in another order differ by some 1e-4 in logits of up to 20.
constexpr float kTolerance = 2e-3F;

class Reference : public testing::TestWithParam<std::string> {
 protected:
  Reference()
      : json_(read_json_object(data(GetParam() + "-reference.json"))),
        tensors_(container::open_safetensors(
            data(GetParam() + "-reference.safetensors"))),
        model_(load_model(open_checkpoint(fs::path(NIBBLE_SOURCE_DIR) /
                                          "models" / GetParam()),
                          {},
                          backend::cpu_backend())) {}

  static fs::path data(const std::string& name) {
    return fs::path(NIBBLE_SOURCE_DIR) / "tests" / "data" / name;
  }

  [[nodiscard]] Tensor tensor(const std::string& name) const {
    return tensors_->load_copy(tensors_->get(name));
  }

  nlohmann::json json_;
  std::unique_ptr<container::CheckpointReader> tensors_;
  std::unique_ptr<model::Transformer> model_;
};

TEST_P(Reference, LogitsOfPromptsAgree) {
  for (std::size_t i = 0; i < json_["prompts"].size(); ++i) {
    const auto ids = json_["prompts"][i]["ids"].get<std::vector<int>>();
    const Tensor expected = tensor("logits." + std::to_string(i));
    const Tensor found = logits_of(*model_, ids);
    ASSERT_EQ(found.shape(), expected.shape());
    EXPECT_LT(largest_difference(found.view(), expected.view()), kTolerance);
  }
}

TEST_P(Reference, EverySetOfInstructionsAgrees) {
  const auto ids = json_["prompts"][0]["ids"].get<std::vector<int>>();
  const Tensor expected = tensor("logits.0");
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (!cpu_has(isa)) {
      continue;
    }
    SCOPED_TRACE(isa_name(isa));
    backend::CpuBackend backend(isa);
    const auto model = load_model(
        open_checkpoint(fs::path(NIBBLE_SOURCE_DIR) / "models" / GetParam()),
        {},
        backend);
    const Tensor found = logits_of(*model, ids);
    EXPECT_LT(largest_difference(found.view(), expected.view()), kTolerance);
  }
}

TEST_P(Reference, LogitsOfALongTextAgreePastTheAttentionChunk) {
  const Tensor id_tensor = tensor("long.ids");
  const auto ids = id_tensor.view().as<std::int32_t>();
  const Tensor position_tensor = tensor("long.positions");
  const auto positions = position_tensor.view().as<std::int32_t>();
  const Tensor expected = tensor("long.logits");
  const Tensor found = logits_of(*model_, ids);
  ASSERT_GT(*std::max_element(positions.begin(), positions.end()), 512);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    EXPECT_LT(largest_difference(
                  found.view().rows(positions[i], 1),
                  expected.view().rows(static_cast<std::int64_t>(i), 1)),
              kTolerance)
        << "position " << positions[i];
  }
  EXPECT_NEAR(
      mean_nll(found.view(), ids), json_["long_nll"].get<double>(), 2e-4);
}

TEST_P(Reference, GreedyContinuationsAreEqual) {
  for (const nlohmann::json& prompt : json_["prompts"]) {
    const auto expected = prompt["greedy"].get<std::vector<int>>();
    EXPECT_EQ(
        greedy(*model_, prompt["ids"].get<std::vector<int>>(), expected.size()),
        expected);
  }
}

TEST_P(Reference, LikelihoodOfHeldOutTextIsEqual) {
  const auto ids = nlohmann::json::parse(read_text_file(data("held-ids.json")))
                       .get<std::vector<std::int32_t>>();
  constexpr std::size_t kWindow = 512;
  double sum = 0;
  const std::size_t windows = ids.size() / kWindow;
  for (std::size_t i = 0; i < windows; ++i) {
    const auto window = std::span(ids).subspan(i * kWindow, kWindow);
    sum += mean_nll(logits_of(*model_, window).view(), window);
  }
  EXPECT_EQ(windows, 32U);
  EXPECT_NEAR(sum / static_cast<double>(windows),
              json_["held_32x512_nll"].get<double>(),
              1e-5);
}

INSTANTIATE_TEST_SUITE_P(Models,
                         Reference,
                         testing::Values("fable-moe", "fable-dense"),
                         [](const auto& param) {
                           return param.param == "fable-moe" ? "Moe" : "Dense";
                         });

// Small random weights in the shapes of Llama 4 Scout: every layer has experts,
// rope is scaled with equal factors, 150 positions cross two chunks of 64.
TEST(ScoutShapes, LogitsAgree) {
  NIBBLE_REFERENCE_OR_SKIP(root, "golden/meta/scout-mini");
  const auto tensors =
      container::open_safetensors(root / "reference.safetensors");
  const Tensor ids = tensors->load_copy(tensors->get("ids"));
  const Tensor expected = tensors->load_copy(tensors->get("logits"));
  const auto model =
      load_model(open_checkpoint(root / "hf"), {}, backend::cpu_backend());
  const Tensor found =
      logits_of(*model, std::as_const(ids).view().as<std::int32_t>());
  EXPECT_LT(largest_difference(found.view(), expected.view()), kTolerance);
}

}  // namespace
}  // namespace nibble::load
