#include "nibble/quant/core/number_spec.h"

#include <gtest/gtest.h>

namespace nibble::quant {
namespace {

NumberSpec int4_group(std::int64_t group) {
  NumberSpec spec;
  spec.scheme = "int4";
  spec.bits = 4;
  spec.grain = Grain::kGroup;
  spec.group = group;
  return spec;
}

NumberSpec fp8_blocks() {
  NumberSpec spec;
  spec.scheme = "fp8";
  spec.floating = true;
  spec.grain = Grain::kBlock;
  spec.block_rows = 128;
  spec.block_columns = 64;
  return spec;
}

TEST(NumberSpec, DescribesItselfForPeople) {
  NumberSpec asymmetric = int4_group(64);
  asymmetric.symmetric = false;
  EXPECT_EQ(describe(LayerSpec{asymmetric, {}}), "int4 group 64 asymmetric");
  EXPECT_EQ(describe(LayerSpec{fp8_blocks(), {}}), "fp8 block 128x64");
  NumberSpec input;
  input.scheme = "int8";
  input.grain = Grain::kToken;
  EXPECT_EQ(describe(LayerSpec{int4_group(32), input}),
            "int4 group 32, int8 token inputs");
  input.grain = Grain::kTensor;
  EXPECT_EQ(describe(LayerSpec{int4_group(32), input}),
            "int4 group 32, int8 tensor inputs static");
}

TEST(NumberSpec, ScaleGridRoundsUpAtTheEdges) {
  const auto expect = [](const ScaleGrid& grid,
                         std::int64_t rows,
                         std::int64_t columns,
                         std::int64_t rows_per,
                         std::int64_t columns_per) {
    EXPECT_EQ(grid.rows, rows);
    EXPECT_EQ(grid.columns, columns);
    EXPECT_EQ(grid.rows_per_scale, rows_per);
    EXPECT_EQ(grid.columns_per_scale, columns_per);
  };
  expect(scale_grid(int4_group(32), 3, 96), 3, 3, 1, 32);
  expect(scale_grid(int4_group(32), 3, 97), 3, 4, 1, 32);
  expect(scale_grid(fp8_blocks(), 130, 65), 2, 2, 128, 64);
  NumberSpec spec;
  spec.grain = Grain::kTensor;
  expect(scale_grid(spec, 5, 7), 1, 1, 5, 7);
  spec.grain = Grain::kChannel;
  expect(scale_grid(spec, 5, 7), 5, 1, 1, 7);
}

TEST(NumberSpec, CountsScalesAndZeroPointsAsBits) {
  EXPECT_DOUBLE_EQ(bits_per_weight(int4_group(128), 10, 256), 4.125);
  NumberSpec asymmetric = int4_group(64);
  asymmetric.symmetric = false;
  EXPECT_DOUBLE_EQ(bits_per_weight(asymmetric, 10, 256), 4 + 20.0 / 64);
  NumberSpec tensor;
  tensor.grain = Grain::kTensor;
  EXPECT_DOUBLE_EQ(bits_per_weight(tensor, 4, 4), 9);
}

TEST(NumberSpec, EveryGrainHasItsName) {
  EXPECT_EQ(grain_name(Grain::kTensor), "tensor");
  EXPECT_EQ(grain_name(Grain::kChannel), "channel");
  EXPECT_EQ(grain_name(Grain::kGroup), "group");
  EXPECT_EQ(grain_name(Grain::kBlock), "block");
  EXPECT_EQ(grain_name(Grain::kToken), "token");
}

}  // namespace
}  // namespace nibble::quant
