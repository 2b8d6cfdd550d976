#include "nibble/container/cast.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/container/safetensors/writer.h"
#include "nibble/tensor/convert.h"
#include "temporary_directory.h"

namespace nibble::container {
namespace {

class Cast : public testing::Test {
 protected:
  // A float32 tensor "x" and a whole-number tensor "n".
  std::shared_ptr<const CheckpointReader> source(
      const std::vector<float>& values) const {
    const auto count = static_cast<std::int64_t>(values.size());
    const Tensor x = Tensor::from_floats({count}, values);
    Tensor n(DType::kI32, {2});
    for (auto& value : n.view().as<std::int32_t>()) {
      value = 7;
    }
    const NamedTensor tensors[] = {{"x", x.view()}, {"n", n.view()}};
    write_safetensors(here_.path() / "model.safetensors", tensors);
    return open_safetensors(here_.path() / "model.safetensors");
  }

  TemporaryDirectory here_;
};

TEST_F(Cast, RoundsToTheNearest) {
  const std::vector<float> values{1.0F, 1.00390625F, -3.14159F, 65504.0F};
  const CastReader reader(source(values), DType::kBF16);
  const TensorInfo& x = reader.get("x");
  EXPECT_EQ(x.dtype, DType::kBF16);
  EXPECT_EQ(x.bytes, 8U);
  const Tensor found = reader.load(x);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(found.view().raw<std::uint16_t>()[i], float_to_bf16(values[i]));
  }
}

TEST_F(Cast, ReadsAnyPart) {
  std::vector<float> values(70000);  // more than a chunk
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 256);
  }
  const CastReader reader(source(values), DType::kF16);
  std::vector<std::uint16_t> found(66000);
  reader.read(
      reader.get("x"), 2 * 100, std::as_writable_bytes(std::span(found)));
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(f16_to_float(found[i]), values[i + 100]) << i;
  }
}

TEST_F(Cast, LeavesOtherTypesAlone) {
  const CastReader reader(source({1}), DType::kBF16);
  EXPECT_EQ(reader.get("n").dtype, DType::kI32);
  EXPECT_EQ(reader.load_copy(reader.get("n")).view().as<std::int32_t>()[1], 7);
}

TEST_F(Cast, RefusesWhatATypeCannotHold) {
  const CastReader reader(source({1, 70000.0F}), DType::kF16);
  expect_error(ErrorCode::kUnsupported, "tensor x: found 70000", [&] {
    static_cast<void>(reader.load(reader.get("x")));
  });
}

// Whether infinite weights are let through is not decided here.
TEST_F(Cast, KeepsValuesThatWereNeverFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const CastReader reader(source({infinity}), DType::kF16);
  const Tensor found = reader.load(reader.get("x"));
  EXPECT_TRUE(std::isinf(f16_to_float(found.view().raw<std::uint16_t>()[0])));
}

}  // namespace
}  // namespace nibble::container
