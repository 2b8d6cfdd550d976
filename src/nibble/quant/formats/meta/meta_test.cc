#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/container/remap.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/load/native/meta_shards.h"
#include "nibble/quant/core/registry.h"
#include "nibble/quant/formats/meta/shard_module.h"
#include "reference_data.h"

namespace nibble::quant {
namespace {

using container::TensorInfo;
using load::CheckpointDirectory;

// Expert e's (rows, columns) weight, output-major, of an input-major stack:
// columns [first, first + rows) of every stored row.
std::vector<std::uint16_t> expert_matrix(const CheckpointDirectory& model,
                                         const std::string& stack,
                                         std::int64_t expert,
                                         std::int64_t first,
                                         std::int64_t rows) {
  const TensorInfo& info = model.reader->get(stack);
  const Tensor all = model.reader->load_copy(info);
  const auto bits = std::as_const(all).view().raw<std::uint16_t>();
  const std::int64_t in = info.shape[1];
  const std::int64_t out = info.shape[2];
  std::vector<std::uint16_t> matrix(static_cast<std::size_t>(rows * in));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < in; ++c) {
      matrix[static_cast<std::size_t>(r * in + c)] =
          bits[static_cast<std::size_t>((expert * in + c) * out + first + r)];
    }
  }
  return matrix;
}

// The packed layer holds what Meta's rule makes of this weight.
void expect_encoded(const QuantizedCheckpoint& packed,
                    const std::string& module,
                    std::vector<std::uint16_t> weight) {
  const auto spec = packed.spec_of(module);
  ASSERT_TRUE(spec) << module;
  const Shape shape = packed.weight_shape(module);
  ASSERT_EQ(shape.elements(), static_cast<std::int64_t>(weight.size()));
  EncodeOptions options;
  options.numerics = Numerics::kMeta;
  const ConstTensorView view(
      reinterpret_cast<const std::byte*>(weight.data()), DType::kBF16, shape);
  const Quantized expected =
      scheme_for(spec->weight).encode(spec->weight, view, options);
  // In two pieces, the second from row 128 on.
  for (std::int64_t first = 0; first < shape[0]; first += 128) {
    const std::int64_t count = std::min<std::int64_t>(128, shape[0] - first);
    const Quantized found = packed.unpack(module, first, count);
    const auto expected_codes = expected.codes.view().rows(first, count);
    EXPECT_EQ(std::memcmp(std::as_const(found.codes).view().data(),
                          expected_codes.data(),
                          expected_codes.bytes()),
              0)
        << module << " row " << first;
    const auto expected_scales = expected.scales.view().rows(first, count);
    EXPECT_EQ(std::memcmp(std::as_const(found.scales).view().data(),
                          expected_scales.data(),
                          expected_scales.bytes()),
              0)
        << module << " row " << first;
  }
}

struct Case {
  const char* model;
  const char* packed;
  int layer;
};

class MetaPackedTest : public ::testing::TestWithParam<Case> {};

// INT4 and FP8 of eight ranks, joined, are what quantizing the whole model by
// the same rule gives: codes and scales, bit for bit.
TEST_P(MetaPackedTest, JoinsToTheQuantizedWholeModel) {
  NIBBLE_REFERENCE_OR_SKIP(root,
                           std::string("golden/meta/") + GetParam().model);
  const CheckpointDirectory dense = load::open_checkpoint(root / "bf16-mp1");
  const CheckpointDirectory shards =
      load::open_checkpoint(root / GetParam().packed);
  const auto packed = open_quantized(*shards.config, *shards.reader);
  ASSERT_NE(packed, nullptr);
  const std::string layer =
      fmt::format("model.layers.{}.feed_forward.experts.", GetParam().layer);
  const Shape stack = dense.reader->get(layer + "gate_up_proj").shape;
  const std::int64_t width = stack[2] / 2;
  for (std::int64_t e = 0; e < stack[0]; ++e) {
    const std::string module = layer + std::to_string(e);
    expect_encoded(*packed,
                   module + ".gate_proj",
                   expert_matrix(dense, layer + "gate_up_proj", e, 0, width));
    expect_encoded(
        *packed,
        module + ".up_proj",
        expert_matrix(dense, layer + "gate_up_proj", e, width, width));
    expect_encoded(*packed,
                   module + ".down_proj",
                   expert_matrix(dense, layer + "down_proj", e, 0, stack[1]));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files,
    MetaPackedTest,
    ::testing::Values(Case{"scout-mini", "int4_330-mp8", 0},
                      Case{"scout-mini", "int4_330-mp8", 2},
                      Case{"scout-mini", "fp8-mp8", 1},
                      Case{"maverick-mini", "int4_330-mp8", 3},
                      Case{"maverick-mini", "int4_main-mp8", 1}));

TEST(MetaPackedTest, QuantizesSharedExpertsOnlyWhereTheFileDoes) {
  NIBBLE_REFERENCE_OR_SKIP(root, "golden/meta/maverick-mini");
  for (const auto& [name, shared] :
       {std::pair("int4_330-mp8", true), std::pair("int4_main-mp8", false)}) {
    const CheckpointDirectory shards = load::open_checkpoint(root / name);
    const auto packed = open_quantized(*shards.config, *shards.reader);
    EXPECT_EQ(
        packed->spec_of("model.layers.1.feed_forward.shared_expert.gate_proj")
            .has_value(),
        shared)
        << name;
  }
}

// Packing a rank's weights gives the bytes of the file of the original tool.
TEST(MetaPackedTest, PacksTheBytesOfTheOriginalTool) {
  NIBBLE_REFERENCE_OR_SKIP(root, "golden/meta/scout-mini");
  const load::MetaShards dense = load::open_meta_shards(root / "bf16-mp8");
  const load::MetaShards packed = load::open_meta_shards(root / "int4_330-mp8");
  const Format& format = format_named("meta");
  LayerSpec spec;
  spec.weight.scheme = "int4";
  spec.weight.bits = 4;
  spec.weight.grain = Grain::kGroup;
  spec.weight.group = 128;
  spec.weight.scale_dtype = DType::kF32;
  const std::string native = "layers.1.feed_forward.experts.moe_w_out_eF_D";
  const TensorInfo& source = dense.ranks[3].weights->get(native);
  constexpr std::int64_t kExperts = 2;
  constexpr std::int64_t kExpert = 1;
  const std::int64_t in = source.shape[0] / kExperts;
  const std::int64_t out = source.shape[1];
  const Tensor input_major = dense.ranks[3].weights->load_copy(source);
  Tensor weight(DType::kBF16, {out, in});
  const auto from = std::as_const(input_major).view().raw<std::uint16_t>();
  const auto to = weight.view().raw<std::uint16_t>();
  for (std::int64_t r = 0; r < out; ++r) {
    for (std::int64_t c = 0; c < in; ++c) {
      to[static_cast<std::size_t>(r * in + c)] =
          from[static_cast<std::size_t>((kExpert * in + c) * out + r)];
    }
  }
  const std::string module =
      meta::ShardModule::name(3, native, kExpert, kExperts);
  const auto planned = format.plan(module, spec, out, in);
  std::vector<std::byte> codes(planned[0].bytes);
  std::vector<std::byte> scales(planned[1].bytes);
  EncodeOptions options;
  options.numerics = Numerics::kMeta;
  for (std::int64_t first = 0; first < out; first += 64) {
    const Quantized tile =
        scheme_for(spec.weight)
            .encode(spec.weight,
                    std::as_const(weight).view().rows(first, 64),
                    options);
    format.pack(module,
                spec,
                out,
                first,
                tile,
                [&](std::string_view name,
                    std::uint64_t offset,
                    std::span<const std::byte> bytes) {
                  auto& target = name == planned[0].name ? codes : scales;
                  ASSERT_LE(offset + bytes.size(), target.size());
                  std::memcpy(
                      target.data() + offset, bytes.data(), bytes.size());
                });
  }
  const auto& weights = *packed.ranks[3].weights;
  const TensorInfo& expected = weights.get(native);
  EXPECT_EQ(planned[0].bytes * kExperts, expected.bytes);
  const Tensor expected_codes = weights.load_copy(expected);
  EXPECT_EQ(std::memcmp(codes.data(),
                        std::as_const(expected_codes).view().data() +
                            kExpert * codes.size(),
                        codes.size()),
            0);
  const TensorInfo& expected_info = packed.ranks[3].scales->get(native);
  EXPECT_EQ(planned[1].bytes * kExperts, expected_info.bytes);
  const Tensor expected_scales =
      packed.ranks[3].scales->load_copy(expected_info);
  EXPECT_EQ(std::memcmp(scales.data(),
                        std::as_const(expected_scales).view().data() +
                            kExpert * scales.size(),
                        scales.size()),
            0);
}

}  // namespace
}  // namespace nibble::quant
