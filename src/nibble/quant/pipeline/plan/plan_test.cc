#include "nibble/quant/pipeline/plan/plan.h"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "nibble/base/parallel.h"
#include "nibble/quant/pipeline/plan/survey.h"
#include "nibble/quant/pipeline/tiny_checkpoint.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;

const std::string kInt4 = one_rule(R"("scheme": "int4", "group": 32)");

class PlanTest : public testing::Test {
 protected:
  PlanTest() { write_tiny(source_, {.family = "llama4"}); }

  [[nodiscard]] Plan plan(const std::string& recipe = kInt4,
                          std::uint64_t memory = 0) const {
    QuantizeOptions options;
    options.output = output_;
    options.memory_bytes = memory;
    return make_plan(
        load::open_checkpoint(source_), load_recipe(recipe), options);
  }

  TemporaryDirectory temporary_;
  const fs::path source_ = temporary_.path() / "in";
  const fs::path output_ = temporary_.path() / "out";
};

// A plan that touched the disk could not be tried out.
TEST_F(PlanTest, WritesNothing) {
  static_cast<void>(plan());
  EXPECT_FALSE(fs::exists(output_));
  EXPECT_FALSE(fs::exists(temporary_.path() / "out.partial"));
}

TEST_F(PlanTest, KnowsTheExactSizeOfTheResult) {
  const Plan planned = plan();
  const QuantizeReport report = quantize_to(source_, kInt4, output_);
  EXPECT_EQ(planned.output_bytes, report.output_bytes);
  EXPECT_DOUBLE_EQ(planned.bits_per_weight, report.bits_per_weight);
  std::uint64_t written = 0;
  for (const auto& entry : fs::recursive_directory_iterator(output_)) {
    written += entry.is_regular_file() ? entry.file_size() : 0;
  }
  EXPECT_LE(written, planned.disk_bytes);
}

TEST_F(PlanTest, GivesEveryTensorAFate) {
  const load::CheckpointDirectory source = load::open_checkpoint(source_);
  const Plan planned = plan();
  EXPECT_EQ(planned.tensors.size(), source.reader->tensors().size());
  const nlohmann::json document = to_json(planned, source);
  EXPECT_EQ(document.at("tensors").size(), planned.tensors.size());
  for (const auto& tensor : document.at("tensors")) {
    EXPECT_TRUE(tensor.contains("layers") || tensor.at("fate") == "copied");
  }
}

TEST_F(PlanTest, HashesWhatDecidesTheBytesAndNothingElse) {
  const load::CheckpointDirectory source = load::open_checkpoint(source_);
  const std::string hash = plan_hash(plan(), source);
  EXPECT_EQ(plan_hash(plan(kInt4, 4 << 20), source), hash);
  set_thread_count(5);
  EXPECT_EQ(plan_hash(plan(), source), hash);
  set_thread_count(0);
  EXPECT_NE(plan_hash(plan(one_rule(R"("scheme": "int4", "group": 64,
                          "on_indivisible": "smaller")")),
                      source),
            hash);
  const auto file = source_ / "model.safetensors";
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::hours(1));
  EXPECT_NE(plan_hash(plan(), source), hash);
}

TEST_F(PlanTest, CutsTilesThatFitTheirShareOfTheMemory) {
  const load::CheckpointDirectory source = load::open_checkpoint(source_);
  for (const std::uint64_t memory : {1500U << 10, 8U << 20, 1U << 30}) {
    const Plan planned = plan(kInt4, memory);
    for (const int workers : {1, 2, 16}) {
      for (const PlannedLayer& layer : planned.layers) {
        const std::int64_t unit = tile_unit_rows(planned, layer);
        const std::int64_t rows =
            tile_rows(planned, layer, DType::kBF16, workers);
        EXPECT_TRUE(rows % unit == 0 || rows == layer.source.rows);
        EXPECT_LE(rows, layer.source.rows);
        EXPECT_LE(tile_cost_bytes(planned, layer, DType::kBF16, rows),
                  planned.buffer_bytes);
      }
    }
  }
}

TEST(NaturalLess, ComparesNumbersAsNumbers) {
  EXPECT_TRUE(natural_less("layers.2.x", "layers.10.a"));
  EXPECT_FALSE(natural_less("layers.10.a", "layers.2.x"));
  EXPECT_TRUE(natural_less("a", "a.b"));
  EXPECT_TRUE(natural_less("a.1", "a.b"));
  EXPECT_FALSE(natural_less("a.1", "a.1"));
  EXPECT_TRUE(natural_less("a.1.b", "a.1.c"));
  EXPECT_TRUE(natural_less("", "a"));
}

}  // namespace
}  // namespace nibble::quant
