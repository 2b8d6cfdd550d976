#include "nibble/quant/pipeline/execute/ordered_digest.h"

#include <array>
#include <memory>

#include "expect_error.h"

namespace nibble::quant {
namespace {

class OrderedDigestTest : public testing::Test {
 protected:
  OrderedDigestTest() {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      bytes_[i] = static_cast<std::byte>(i * 7);
    }
  }

  [[nodiscard]] std::span<const std::byte> part(std::size_t first,
                                                std::size_t count) const {
    return std::span(bytes_).subspan(first, count);
  }

  std::array<std::byte, 100> bytes_{};
};

TEST_F(OrderedDigestTest, DoesNotDependOnTheOrderOfPieces) {
  OrderedDigest digest;
  for (const std::size_t first : {60U, 20U, 0U, 80U, 40U}) {
    digest.add(first, part(first, 20), nullptr);
  }
  EXPECT_EQ(digest.digest(100), hash_bytes(bytes_));
}

TEST_F(OrderedDigestTest, HoldsTheOwnerOfBytesUntilTheyAreHashed) {
  OrderedDigest digest;
  const auto owner = std::make_shared<int>(1);
  digest.add(50, part(50, 50), owner);
  EXPECT_EQ(owner.use_count(), 2);
  digest.add(0, part(0, 50), owner);
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_EQ(digest.digest(100), hash_bytes(bytes_));
}

TEST_F(OrderedDigestTest, LetsGoOfPendingBytesWhenAbandoned) {
  OrderedDigest digest;
  const auto owner = std::make_shared<int>(1);
  digest.add(50, part(50, 50), owner);
  digest.abandon();
  EXPECT_EQ(owner.use_count(), 1);
  digest.add(70, part(70, 10), owner);
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_F(OrderedDigestTest, RefusesADigestWithAGap) {
  OrderedDigest digest;
  digest.add(0, part(0, 50), nullptr);
  expect_error(ErrorCode::kInternal, "found 50 bytes", [&] {
    static_cast<void>(digest.digest(100));
  });
  digest.add(60, part(60, 40), nullptr);
  expect_error(ErrorCode::kInternal, "found 50 bytes", [&] {
    static_cast<void>(digest.digest(100));
  });
}

}  // namespace
}  // namespace nibble::quant
