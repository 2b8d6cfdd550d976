#include "nibble/base/hash/hash.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <xxhash.h>

#include "nibble/base/cpu.h"
#include "nibble/base/hash/hash_x86.h"

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

#if defined(__x86_64__)
// In pieces around the library's blocks of 64, 256 and 1024 bytes.
TEST(Hash, IsTheSameForEverySetOfInstructions) {
  std::string text(70'000, ' ');
  for (std::size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<char>(i * i % 251);
  }
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(
      XXH3_createState(), XXH3_freeState);
  for (const std::size_t length : {0U, 1U, 240U, 241U, 1024U, 70'000U}) {
    const XXH128_hash_t expected = XXH3_128bits(text.data(), length);
    for (const std::size_t piece : {63U, 1000U, 4096U, 70'000U}) {
      for (const auto& [isa, update] :
           {std::pair(Isa::kAvx2, &update_hash_avx2),
            std::pair(Isa::kAvx512, &update_hash_avx512)}) {
        if (!cpu_has(isa)) {
          continue;
        }
        XXH3_128bits_reset(state.get());
        for (std::size_t at = 0; at < length; at += piece) {
          update(state.get(), text.data() + at, std::min(piece, length - at));
        }
        EXPECT_TRUE(XXH128_isEqual(XXH3_128bits_digest(state.get()), expected))
            << isa_name(isa) << ", " << length << " bytes by " << piece;
      }
    }
  }
}
#endif

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
