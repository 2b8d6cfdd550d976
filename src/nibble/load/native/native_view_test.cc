#include "nibble/load/native/native_view.h"

#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/container/torch_pickle/reader.h"
#include "nibble/container/torch_pickle/writer.h"
#include "nibble/load/checkpoint_directory.h"
#include "nibble/load/native/meta_config.h"
#include "nibble/load/native/meta_shards.h"
#include "nibble/load/native/meta_view.h"
#include "reference_data.h"
#include "temporary_directory.h"

namespace nibble::load {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class NativeViewTest : public ::testing::Test {
 protected:
  static CheckpointDirectory bundled(const std::string& name) {
    return open_checkpoint(fs::path(NIBBLE_SOURCE_DIR) / "models" / name);
  }

  // Writes a checkpoint as `ranks` of Meta's shards and params.json.
  void write_shards(CheckpointDirectory checkpoint, std::int64_t ranks) {
    const std::shared_ptr<const container::CheckpointReader> source(
        std::move(checkpoint.reader));
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const auto shard = view_as_native(
          source, *checkpoint.config, NativeLayout::kMeta, ranks, rank);
      container::TorchFileWriter writer(
          directory_,
          {fmt::format("consolidated.{:02}.pth", rank),
           {shard->tensors().begin(), shard->tensors().end()}});
      for (const container::TensorInfo& tensor : shard->tensors()) {
        const Tensor data = shard->load_copy(tensor);
        writer.write(tensor.name, 0, data.view().byte_span());
      }
      writer.finish();
    }
    write_file_atomically(directory_ / "params.json",
                          params_from_config(*checkpoint.config).dump());
  }

  TemporaryDirectory temporary_;
  fs::path directory_ = temporary_.path();
};

struct Case {
  const char* model;
  std::int64_t ranks;
};

class RoundTripTest : public NativeViewTest,
                      public ::testing::WithParamInterface<Case> {};

// Hugging Face -> shards -> Hugging Face gives every byte back.
TEST_P(RoundTripTest, GivesEveryByteBack) {
  write_shards(bundled(GetParam().model), GetParam().ranks);
  const CheckpointDirectory source = bundled(GetParam().model);
  const CheckpointDirectory back = open_checkpoint(directory_);
  ASSERT_EQ(back.reader->tensors().size(), source.reader->tensors().size());
  for (const container::TensorInfo& tensor : source.reader->tensors()) {
    const container::TensorInfo& other = back.reader->get(tensor.name);
    ASSERT_EQ(other.shape, tensor.shape) << tensor.name;
    const Tensor a = source.reader->load_copy(tensor);
    const Tensor b = back.reader->load_copy(other);
    EXPECT_EQ(std::memcmp(std::as_const(a).view().data(),
                          std::as_const(b).view().data(),
                          a.bytes()),
              0)
        << tensor.name;
  }
  for (const char* key : {"hidden_size",
                          "num_attention_heads",
                          "num_key_value_heads",
                          "head_dim",
                          "vocab_size",
                          "rms_norm_eps",
                          "intermediate_size"}) {
    EXPECT_EQ((*back.config)[key], (*source.config)[key]) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         RoundTripTest,
                         ::testing::Values(Case{"fable-moe", 1},
                                           Case{"fable-moe", 2},
                                           Case{"fable-moe", 4},
                                           Case{"fable-moe", 8},
                                           Case{"fable-dense", 1},
                                           Case{"fable-dense", 4}));

// Shards of another writer -> Hugging Face -> shards: the same tensors.
TEST_F(NativeViewTest, WritesTheShardsOfTheOriginalTool) {
  NIBBLE_REFERENCE_OR_SKIP(root, "golden/meta/maverick-mini/bf16-mp8");
  CheckpointDirectory checkpoint = open_checkpoint(root);
  const nlohmann::json config = *checkpoint.config;
  const std::shared_ptr<const container::CheckpointReader> source(
      std::move(checkpoint.reader));
  const MetaShards shards = open_meta_shards(root);
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    const auto mine =
        view_as_native(source, config, NativeLayout::kMeta, 8, rank);
    const auto& theirs = *shards.ranks[static_cast<std::size_t>(rank)].weights;
    for (const container::TensorInfo& tensor : mine->tensors()) {
      const container::TensorInfo& other = theirs.get(tensor.name);
      ASSERT_EQ(tensor.shape, other.shape) << tensor.name;
      const Tensor a = mine->load_copy(tensor);
      const Tensor b = theirs.load_copy(other);
      EXPECT_EQ(std::memcmp(std::as_const(a).view().data(),
                            std::as_const(b).view().data(),
                            a.bytes()),
                0)
          << rank << " " << tensor.name;
    }
  }
}

// gpt-fast's own converter made model.pth from the bundled dense model.
TEST_F(NativeViewTest, IsTheFileOfGptFastsConverter) {
  NIBBLE_REFERENCE_OR_SKIP(file, "golden/gpt-fast/fable-dense/model.pth");
  CheckpointDirectory checkpoint = bundled("fable-dense");
  const nlohmann::json config = *checkpoint.config;
  const auto mine =
      view_as_native(std::shared_ptr<const container::CheckpointReader>(
                         std::move(checkpoint.reader)),
                     config,
                     NativeLayout::kGptFast,
                     1,
                     0);
  MetaShards one;
  one.ranks.push_back({container::open_torch_file(file), nullptr});
  const auto& theirs = *one.ranks[0].weights;
  ASSERT_EQ(mine->tensors().size(), theirs.tensors().size());
  for (const container::TensorInfo& tensor : mine->tensors()) {
    const container::TensorInfo& other = theirs.get(tensor.name);
    ASSERT_EQ(tensor.shape, other.shape) << tensor.name;
    const Tensor a = mine->load_copy(tensor);
    const Tensor b = theirs.load_copy(other);
    EXPECT_EQ(std::memcmp(std::as_const(a).view().data(),
                          std::as_const(b).view().data(),
                          a.bytes()),
              0)
        << tensor.name;
  }
}

TEST_F(NativeViewTest, RefusesShardCountsThatDoNotDivide) {
  CheckpointDirectory checkpoint = bundled("fable-dense");
  const std::shared_ptr<const container::CheckpointReader> source(
      std::move(checkpoint.reader));
  try {
    static_cast<void>(
        view_as_native(source, *checkpoint.config, NativeLayout::kMeta, 3, 0));
    FAIL() << "accepted 3 shards";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.hint(), HasSubstr("divisor of 4"));
  }
}

TEST_F(NativeViewTest, RefusesExpertsInGptFastsLayout) {
  CheckpointDirectory checkpoint = bundled("fable-moe");
  const std::shared_ptr<const container::CheckpointReader> source(
      std::move(checkpoint.reader));
  EXPECT_THROW(static_cast<void>(view_as_native(
                   source, *checkpoint.config, NativeLayout::kGptFast, 1, 0)),
               Error);
}

}  // namespace
}  // namespace nibble::load
