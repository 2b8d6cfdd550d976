#include "nibble/base/hash.h"

#include <string>

#include <gtest/gtest.h>

namespace nibble {
namespace {

// The published XXH3 128-bit value of no input.
TEST(Hash, OfNothingIsThePublishedValue) {
  EXPECT_EQ(hash_bytes({}), "xxh3:99aa06d3014798d86001c324468d497f");
}

TEST(Hash, DoesNotDependOnThePieces) {
  const std::string text(100'000, 'n');
  Hasher pieces;
  for (std::size_t at = 0; at < text.size(); at += 777) {
    pieces.update(std::string_view(text).substr(at, 777));
  }
  EXPECT_EQ(pieces.digest(), hash_bytes(std::as_bytes(std::span(text))));
}

TEST(Hash, SeesOneChangedBit) {
  std::string text(1000, 'n');
  const std::string before = hash_bytes(std::as_bytes(std::span(text)));
  text[999] = 'o';
  EXPECT_NE(hash_bytes(std::as_bytes(std::span(text))), before);
}

TEST(Hash, DigestMayBeTakenBetweenUpdates) {
  Hasher hasher;
  hasher.update("ab");
  const std::string first = hasher.digest();
  EXPECT_EQ(hasher.digest(), first);
  hasher.update("c");
  EXPECT_EQ(hasher.digest(), hash_bytes(std::as_bytes(std::span("abc", 3))));
}

}  // namespace
}  // namespace nibble
