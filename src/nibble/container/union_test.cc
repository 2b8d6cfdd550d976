#include "nibble/container/union.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/container/safetensors/writer.h"
#include "temporary_directory.h"

namespace nibble::container {
namespace {

class Union : public testing::Test {
 protected:
  std::shared_ptr<const CheckpointReader> file(const std::string& name,
                                               float value) const {
    const Tensor x = Tensor::from_floats({2}, std::vector<float>{value, value});
    const NamedTensor tensors[] = {{"x", x.view()}};
    write_safetensors(here_.path() / name, tensors);
    return open_safetensors(here_.path() / name);
  }

  TemporaryDirectory here_;
};

TEST_F(Union, NamesEachTensorByItsReader) {
  const UnionReader reader({{"rank0/", file("a.safetensors", 1)},
                            {"rank1/", file("b.safetensors", 2)}});
  ASSERT_EQ(reader.tensors().size(), 2U);
  EXPECT_EQ(reader.load_copy(reader.get("rank0/x")).view().as<float>()[1], 1);
  EXPECT_EQ(reader.load_copy(reader.get("rank1/x")).view().as<float>()[1], 2);
  EXPECT_EQ(reader.get("rank1/x").file, 1U);
  EXPECT_EQ(reader.files().size(), 2U);
}

TEST_F(Union, CountsTheFilesOfSeveralViewsOnce) {
  const auto one = file("a.safetensors", 1);
  const UnionReader reader({{"rank0/", one}, {"rank1/", one}});
  EXPECT_EQ(reader.files().size(), 1U);
  EXPECT_EQ(reader.get("rank1/x").file, 0U);
}

TEST_F(Union, RefusesOneNameForTwo) {
  const auto one = file("a.safetensors", 1);
  expect_error(ErrorCode::kCorruptData, "rank0/x", [&] {
    const UnionReader reader({{"rank0/", one}, {"rank0/", one}});
  });
}

}  // namespace
}  // namespace nibble::container
