#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/quant/engines/tensor_parallel.h"
#include "nibble/quant/pipeline/plan/engine_facts.h"
#include "nibble/quant/pipeline/plan/plan.h"
#include "nibble/quant/planning/header_checkpoint_for_tests.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

using Degrees = std::vector<std::int64_t>;

Plan plan_of(const load::CheckpointDirectory& source, const char* recipe) {
  QuantizeOptions options;
  options.memory_bytes = std::uint64_t{2} << 30;
  return make_plan(source, load_recipe(recipe), options);
}

TEST(LargePlan, StackedExpertsOf400BillionParameters) {
  const TemporaryDirectory scratch;
  write_maverick_headers(scratch.path(), ExpertForm::kStacked);
  const load::CheckpointDirectory source =
      load::open_checkpoint(scratch.path());
  const Plan plan = plan_of(source, "llama4-int4");
  // 24 x (128 + 1) x 3 in layers with experts, 24 x 3 in the others.
  EXPECT_EQ(plan.layers.size(), 9360U);
  EXPECT_GT(plan.source_parameters, 400'000'000'000);
  EXPECT_NEAR(plan.bits_per_weight, 4.28, 0.01);
  EXPECT_LT(plan.peak_memory_bytes, std::uint64_t{1} << 30);

  const ModelFacts facts = model_facts(plan, source);
  EXPECT_EQ(facts.heads, 40);
  EXPECT_EQ(facts.experts, 128);
  // 16 ranks would cut a head in two, 5 an expert.
  EXPECT_EQ(parallel_degrees(engine_named("vllm"), facts).degrees,
            (Degrees{1, 2, 4, 8}));
  EXPECT_EQ(assess(engine_named("vllm"), facts).verdict, Verdict::kAccepted);
  EXPECT_EQ(assess(engine_named("llama.cpp"), facts).verdict,
            Verdict::kRefused);
}

TEST(LargePlan, FortyThousandTensors) {
  const TemporaryDirectory scratch;
  write_maverick_headers(scratch.path(), ExpertForm::kSeparate, 30'000);
  const load::CheckpointDirectory source =
      load::open_checkpoint(scratch.path());
  EXPECT_GT(source.reader->tensors().size(), 39'000U);
  const Plan plan = plan_of(source, "fp8");
  EXPECT_EQ(plan.layers.size(), 9360U);
  EXPECT_EQ(plan.tensors.size(), source.reader->tensors().size());
  const ModelFacts facts = model_facts(plan, source);
  for (const EngineCuts& engine : engines()) {
    if (engine.engine != "llama.cpp" && engine.engine != "transformers") {
      EXPECT_EQ(assess(engine, facts).verdict, Verdict::kAccepted)
          << engine.engine;
    }
  }
}

// A list of exact names, as other tools write into their configs, must not be
// compared with every module of the model.
TEST(LargePlan, ARecipeOfThousandsOfExactNames) {
  const TemporaryDirectory scratch;
  write_maverick_headers(scratch.path(), ExpertForm::kStacked);
  const load::CheckpointDirectory source =
      load::open_checkpoint(scratch.path());
  const Plan all = plan_of(source, "int4");
  nlohmann::json keep = nlohmann::json::array();
  for (const PlannedLayer& layer : all.layers) {
    if (layer.module.find(".layers.1.") == std::string::npos) {
      keep.push_back(layer.module);
    }
  }
  const nlohmann::json recipe = {{"version", 1},
                                 {"rules",
                                  {{{"match", keep}, {"scheme", "keep"}},
                                   {{"match", "*"}, {"scheme", "int4"}}}}};
  const Plan plan = plan_of(source, recipe.dump().c_str());
  std::size_t quantized = 0;
  for (const PlannedLayer& layer : plan.layers) {
    quantized += layer.spec ? 1 : 0;
  }
  EXPECT_EQ(quantized, 129U * 3);
}

}  // namespace
}  // namespace nibble::quant
