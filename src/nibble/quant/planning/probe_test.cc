#include "nibble/quant/planning/probe.h"

#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/quant/planning/write_probe.h"
#include "temporary_directory.h"

namespace nibble::quant {
namespace {

namespace fs = std::filesystem;

TEST(WriteProbe, WritesAndLeavesNothing) {
  const TemporaryDirectory scratch;
  const std::vector<std::byte> data(4096, std::byte{7});
  const WriteProbe probe = probe_write(scratch.path(), data, 10'000, 60);
  EXPECT_EQ(probe.bytes, 12'288U);  // whole pieces of data
  EXPECT_GT(probe.seconds, 0);
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(WriteProbe, APlaceThatCannotBeWrittenGivesNoBytes) {
  const std::vector<std::byte> data(16);
  EXPECT_EQ(probe_write("/nonexistent", data, 100, 1).bytes, 0U);
}

TEST(WriteProbe, TheNearestDirectoryThatExists) {
  const TemporaryDirectory scratch;
  EXPECT_EQ(existing_directory(scratch.path()), scratch.path());
  EXPECT_EQ(existing_directory(scratch.path() / "a" / "b"), scratch.path());
  EXPECT_EQ(existing_directory(scratch.path() / "."), scratch.path());
  EXPECT_EQ(existing_directory("/nonexistent/x"), "/");
}

TEST(Probe, APlanThatQuantizesNothingItCanReadHasNoEstimate) {
  // No layer with a spec: nothing to measure.
  const load::CheckpointDirectory source =
      load::open_checkpoint(fs::path(NIBBLE_SOURCE_DIR) / "models/fable-moe");
  Plan plan = make_plan(source, load_recipe("int4"), {});
  for (PlannedLayer& layer : plan.layers) {
    layer.spec.reset();
  }
  EXPECT_FALSE(probe_time(plan, source, {}));
}

}  // namespace
}  // namespace nibble::quant
