#include "nibble/quant/planning/forecast.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "temporary_directory.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;

class Forecasting : public testing::Test {
 protected:
  Forecasting()
      : source_(load::open_checkpoint(fs::path(NIBBLE_SOURCE_DIR) /
                                      "models/fable-moe")) {}

  Forecast of(const char* recipe, const QuantizeOptions& options = {}) {
    plan_ = make_plan(source_, load_recipe(recipe), options);
    return forecast(plan_, source_, options);
  }

  load::CheckpointDirectory source_;
  Plan plan_;
};

TEST_F(Forecasting, TimeIsMeasuredFromTheSource) {
  const Forecast made = of("int4");
  ASSERT_TRUE(made.time);
  EXPECT_GT(made.time->seconds, 0);
  EXPECT_GT(made.time->read_bytes, 0U);
  EXPECT_GT(made.time->written_bytes, 0U);
  // Stacks of experts are stored the other way round, which costs time.
  ASSERT_EQ(made.time->encode.size(), 2U);
  EXPECT_NE(made.time->encode[0].input_major, made.time->encode[1].input_major);
  EXPECT_EQ(made.time->encode.front().scheme, "int4 group 128");
}

TEST_F(Forecasting, EachSchemeIsMeasured) {
  const Forecast made = of(
      R"({"version": 1, "rules": [
           {"match": "*.experts.*", "scheme": "fp8"},
           {"match": "*", "scheme": "int8"}]})");
  ASSERT_TRUE(made.time);
  EXPECT_EQ(made.time->encode.size(), 2U);
}

TEST_F(Forecasting, NothingIsLeftOnDisk) {
  const TemporaryDirectory scratch;
  QuantizeOptions options;
  options.output = scratch.path() / "a" / "out";
  const Forecast made = of("int4", options);
  ASSERT_TRUE(made.time);
  EXPECT_EQ(made.time->written_to, scratch.path());
  EXPECT_EQ(made.disk, scratch.path());
  EXPECT_GT(made.free_bytes, 0U);
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST_F(Forecasting, AllEnginesOrTheNamedOnes) {
  EXPECT_EQ(of("int4").engines.size(), engines().size());
  QuantizeOptions options;
  options.engines = {"sglang"};
  const Forecast made = of("fp8", options);
  ASSERT_EQ(made.engines.size(), 1U);
  EXPECT_EQ(made.engines.front().engine, "sglang");
  EXPECT_EQ(made.parallel.front().engine, "sglang");
}

TEST_F(Forecasting, TheDocumentHasEveryAnswer) {
  const nlohmann::json document = to_json(of("int4"), plan_);
  EXPECT_GT(document.at("time").at("seconds").get<double>(), 0);
  EXPECT_EQ(document.at("disk").at("needed_bytes").get<std::uint64_t>(),
            plan_.disk_bytes);
  EXPECT_EQ(document.at("engines").size(), engines().size());
  EXPECT_EQ(document.at("tensor_parallel").at(0).at("engine"), "vllm");
  EXPECT_EQ(document.at("tensor_parallel").at(0).at("degrees").at(0), 1);
  EXPECT_EQ(document.at("expert_parallel"), (nlohmann::json{1, 2, 4, 8}));
}

}  // namespace
}  // namespace nibble::quant
