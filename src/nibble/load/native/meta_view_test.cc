#include <cstring>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/container/torch_pickle/writer.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/load/native/meta_shards.h"
#include "reference_data.h"
#include "temporary_directory.h"

namespace nibble::load {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Every tensor of expected is in found, with the same bytes.
void expect_same_tensors(const container::CheckpointReader& found,
                         const container::CheckpointReader& expected) {
  std::set<std::string> names;
  for (const container::TensorInfo& tensor : expected.tensors()) {
    const container::TensorInfo* other = found.find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    ASSERT_EQ(other->shape, tensor.shape) << tensor.name;
    ASSERT_EQ(other->dtype, tensor.dtype) << tensor.name;
    const Tensor a = found.load_copy(*other);
    const Tensor b = expected.load_copy(tensor);
    EXPECT_EQ(std::memcmp(a.view().data(), b.view().data(), b.bytes()), 0)
        << tensor.name;
    names.insert(tensor.name);
  }
  EXPECT_EQ(found.tensors().size(), names.size());
}

class MetaGoldenTest : public ::testing::TestWithParam<const char*> {};

// The same weights in Hugging Face's layout, written by another program.
TEST_P(MetaGoldenTest, IsTheHuggingFaceModelByteForByte) {
  NIBBLE_REFERENCE_OR_SKIP(root, "golden/meta/scout-mini");
  const CheckpointDirectory meta = open_checkpoint(root / GetParam());
  const CheckpointDirectory plain = open_checkpoint(root / "hf");
  expect_same_tensors(*meta.reader, *plain.reader);
}

INSTANTIATE_TEST_SUITE_P(ShardCounts,
                         MetaGoldenTest,
                         ::testing::Values("bf16-mp1", "bf16-mp8"));

TEST(MetaViewTest, JoinsShardsOfDenseExpertAndMixedLayers) {
  NIBBLE_REFERENCE_OR_SKIP(root, "golden/meta/maverick-mini");
  const CheckpointDirectory eight = open_checkpoint(root / "bf16-mp8");
  const CheckpointDirectory one = open_checkpoint(root / "bf16-mp1");
  expect_same_tensors(*eight.reader, *one.reader);
}

// A slice that begins and ends inside rows of joined columns.
TEST(MetaViewTest, ReadsSlicesAcrossShards) {
  NIBBLE_REFERENCE_OR_SKIP(root, "golden/meta/scout-mini/bf16-mp8");
  const CheckpointDirectory meta = open_checkpoint(root);
  for (const char* name :
       {"model.layers.0.self_attn.o_proj.weight",
        "model.layers.1.feed_forward.router.weight",
        "model.layers.2.feed_forward.experts.gate_up_proj"}) {
    const container::TensorInfo& tensor = meta.reader->get(name);
    const Tensor whole = meta.reader->load_copy(tensor);
    const std::size_t first = 2 * 77;
    std::vector<std::byte> slice(2 * 101);
    meta.reader->read(tensor, first, slice);
    EXPECT_EQ(
        std::memcmp(slice.data(), whole.view().data() + first, slice.size()), 0)
        << name;
  }
}

TEST(MetaViewTest, SaysWhatItLeavesOut) {
  NIBBLE_REFERENCE_OR_SKIP(root, "golden/meta/scout-mini/bf16-mp8");
  const CheckpointDirectory meta = open_checkpoint(root);
  const auto& metadata = meta.reader->metadata();
  EXPECT_THAT(metadata.at("rope.freqs"), HasSubstr("derived"));
  EXPECT_THAT(metadata.at("layers.0.attention.wo._extra_state"),
              HasSubstr("training"));
}

// A directory of small shards of a Llama 3 model, made by the test.
class MetaDirectoryTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kDim = 8;
  static constexpr std::int64_t kHeads = 2;

  MetaDirectoryTest() {
    write_file_atomically(
        directory_ / "params.json",
        R"({"dim": 8, "n_layers": 1, "n_heads": 2, "vocab_size": 16,
            "rope_theta": 500000.0})");
  }

  // Element i of tensor t of rank r holds the bf16 bits 1000 t + 100 r + i.
  void write_shard(const std::string& file, int rank, std::int64_t ranks) {
    const std::int64_t rows = kDim / ranks;
    const std::vector<std::pair<std::string, Shape>> shapes{
        {"tok_embeddings.weight", {16 / ranks, kDim}},
        {"layers.0.attention.wq.weight", {rows, kDim}},
        {"layers.0.attention.wk.weight", {rows, kDim}},
        {"layers.0.attention.wv.weight", {rows, kDim}},
        {"layers.0.attention.wo.weight", {kDim, rows}},
        {"layers.0.feed_forward.w1.weight", {4 / ranks, kDim}},
        {"layers.0.feed_forward.w3.weight", {4 / ranks, kDim}},
        {"layers.0.feed_forward.w2.weight", {kDim, 4 / ranks}},
        {"layers.0.attention_norm.weight", {kDim}},
        {"layers.0.ffn_norm.weight", {kDim}},
        {"norm.weight", {kDim}},
        {"output.weight", {16 / ranks, kDim}}};
    std::vector<container::TensorInfo> infos;
    for (const auto& [name, shape] : shapes) {
      infos.push_back({name,
                       DType::kBF16,
                       shape,
                       static_cast<std::uint64_t>(shape.elements()) * 2,
                       "",
                       0});
    }
    container::TorchFileWriter writer(directory_, {file, infos});
    for (std::size_t t = 0; t < infos.size(); ++t) {
      std::vector<std::uint16_t> values(infos[t].bytes / 2);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<std::uint16_t>(
            1000 * t + 100 * static_cast<std::size_t>(rank) + i);
      }
      writer.write(infos[t].name, 0, std::as_bytes(std::span(values)));
    }
    writer.finish();
  }

  std::string refusal() const {
    try {
      static_cast<void>(open_checkpoint(directory_));
    } catch (const Error& error) {
      return error.what();
    }
    return "opened";
  }

  TemporaryDirectory temporary_;
  fs::path directory_ = temporary_.path();
};

TEST_F(MetaDirectoryTest, PutsRotaryRowsInHalfSplitOrder) {
  write_shard("consolidated.00.pth", 0, 2);
  write_shard("consolidated.01.pth", 1, 2);
  const CheckpointDirectory meta = open_checkpoint(directory_);
  EXPECT_EQ((*meta.config)["architectures"][0], "LlamaForCausalLM");
  const Tensor q = meta.reader->load_copy(
      meta.reader->get("model.layers.0.self_attn.q_proj.weight"));
  ASSERT_EQ(q.shape(), Shape({8, 8}));
  // Head 0 lies in rank 0: its rows 0 1 2 3 come as 0 2 1 3.
  const auto bits = std::as_const(q).view().raw<std::uint16_t>();
  EXPECT_EQ(bits[0], 1000);
  EXPECT_EQ(bits[8], 1000 + 2 * 8);
  EXPECT_EQ(bits[16], 1000 + 1 * 8);
  EXPECT_EQ(bits[32], 1100);  // head 1: rank 1
  // v keeps its rows; o joins columns.
  const Tensor o = meta.reader->load_copy(
      meta.reader->get("model.layers.0.self_attn.o_proj.weight"));
  const auto o_bits = std::as_const(o).view().raw<std::uint16_t>();
  EXPECT_EQ(o_bits[3], 4003);
  EXPECT_EQ(o_bits[4], 4100);
}

TEST_F(MetaDirectoryTest, RefusesAMissingRank) {
  write_shard("consolidated.00.pth", 0, 4);
  write_shard("consolidated.02.pth", 2, 4);
  EXPECT_THAT(refusal(), HasSubstr("found no shard of rank 1"));
}

TEST_F(MetaDirectoryTest, RefusesRanksOfDifferentShapes) {
  write_shard("consolidated.00.pth", 0, 2);
  write_shard("consolidated.01.pth", 1, 1);
  EXPECT_THAT(refusal(),
              HasSubstr("tok_embeddings.weight: found BF16 (16, 8)"));
}

TEST_F(MetaDirectoryTest, RefusesAMissingScaleFile) {
  write_shard("consolidated.00.pth", 0, 2);
  write_shard("consolidated.01.pth", 1, 2);
  write_shard("int4_scales_0.pt", 0, 2);
  EXPECT_THAT(refusal(), HasSubstr("found 1 int4_scales files, expected 2"));
}

TEST_F(MetaDirectoryTest, ReadsRanksAsNumbers) {
  for (int rank = 0; rank < 11; ++rank) {
    write_shard(fmt::format("consolidated.{:02}.pth", rank), rank, 2);
    write_shard(fmt::format("int4_scales_{}.pt", rank), rank, 2);
  }
  const MetaShards shards = open_meta_shards(directory_);
  ASSERT_EQ(shards.ranks.size(), 11u);
  EXPECT_EQ(shards.ranks[2].scales->files()[0].filename(), "int4_scales_2.pt");
  EXPECT_EQ(shards.ranks[10].scales->files()[0].filename(),
            "int4_scales_10.pt");
}

TEST_F(MetaDirectoryTest, RefusesADirectoryWithoutParams) {
  write_shard("consolidated.00.pth", 0, 1);
  fs::remove(directory_ / "params.json");
  EXPECT_THAT(refusal(), HasSubstr("found no params.json"));
}

TEST_F(MetaDirectoryTest, RefusesHeadsThatDoNotDivide) {
  write_shard("consolidated.00.pth", 0, 1);
  write_file_atomically(directory_ / "params.json",
                        R"({"dim": 8, "n_layers": 1, "n_heads": 3})");
  EXPECT_THAT(refusal(), HasSubstr("heads that divide dim"));
}

}  // namespace
}  // namespace nibble::load
