#include "nibble/base/files/mapping_registry.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nibble/base/files/file.h"
#include "temporary_directory.h"

namespace nibble {
namespace {

TEST(MappedRange, IsFoundByEveryAddressInsideIt) {
  const std::vector<char> bytes(100);
  const MappedRange range(bytes.data() + 10, 50, "some/file");
  EXPECT_STREQ(mapped_file_at(bytes.data() + 10), "some/file");
  EXPECT_STREQ(mapped_file_at(bytes.data() + 59), "some/file");
  EXPECT_EQ(mapped_file_at(bytes.data() + 9), nullptr);
  EXPECT_EQ(mapped_file_at(bytes.data() + 60), nullptr);
  EXPECT_EQ(mapped_file_at(nullptr), nullptr);
}

TEST(MappedRange, IsForgottenWithTheObjectAndItsPlaceUsedAgain) {
  const std::vector<char> bytes(300);
  std::vector<std::unique_ptr<MappedRange>> ranges;
  for (int i = 0; i < 100; ++i) {
    ranges.push_back(std::make_unique<MappedRange>(
        bytes.data() + 3 * i, 3, "file " + std::to_string(i)));
  }
  for (int i = 0; i < 100; i += 2) {
    ranges[static_cast<std::size_t>(i)].reset();
  }
  const MappedRange again(bytes.data() + 6, 2, "another");
  for (int i = 0; i < 100; ++i) {
    const char* found = mapped_file_at(bytes.data() + 3 * i + 1);
    if (i == 2) {
      EXPECT_STREQ(found, "another");
    } else if (i % 2 == 0) {
      EXPECT_EQ(found, nullptr);
    } else {
      EXPECT_EQ(found, "file " + std::to_string(i));
    }
  }
}

TEST(MappedRange, IsMadeByEveryMappedFile) {
  const TemporaryDirectory directory;
  const auto path = directory.add("x", "content");
  const void* inside = nullptr;
  {
    const MappedFile mapped(File::open_read(path));
    inside = mapped.bytes().data() + 3;
    EXPECT_EQ(mapped_file_at(inside), path.string());
  }
  EXPECT_EQ(mapped_file_at(inside), nullptr);
}

}  // namespace
}  // namespace nibble
