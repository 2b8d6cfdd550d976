#include "nibble/quant/formats/compressed_tensors/bits/bits.h"

#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace nibble::quant::compressed_tensors {
namespace {

std::vector<std::uint32_t> words_of(std::span<const std::byte> bytes) {
  std::vector<std::uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

TEST(Bits, FourBitCodesMatchTheWorkedExample) {
  const std::vector<std::int8_t> codes = {2, -8, 5, 0, -1, 4, -8, 7};
  std::vector<std::byte> words(4);
  pack_row(codes, 4, words);
  EXPECT_EQ(words_of(words), std::vector<std::uint32_t>{0xF0C78D0AU});
  EXPECT_EQ(words[0], std::byte{0x0A});
}

TEST(Bits, ZeroPointsLieDownTheRows) {
  // Unsigned 7 8 9 0 15 8 8 1 in rows 0..7 of one group.
  const std::vector<std::int8_t> zeros = {-1, 0, 1, -8, 7, 0, 0, -7};
  std::vector<std::byte> words(4);
  pack_columns(zeros, 1, 4, words);
  EXPECT_EQ(words_of(words), std::vector<std::uint32_t>{0x188F0987U});
}

TEST(Bits, ZeroPointsOfSeveralGroupsKeepTheirColumn) {
  // 8-bit: 4 rows a word; 5 rows and 2 groups need 2 x 2 words.
  const std::vector<std::int8_t> zeros = {
      -128, 1, -127, 2, -126, 3, -125, 4, -124, 5};
  std::vector<std::byte> words(16);
  pack_columns(zeros, 2, 8, words);
  EXPECT_EQ(words_of(words),
            (std::vector<std::uint32_t>{
                0x03020100U, 0x84838281U, 0x00000004U, 0x00000085U}));
}

// Every size around a word's boundary, both widths.
TEST(Bits, RowsComeBackAndTheRestOfTheLastWordIsZero) {
  std::mt19937 random(7);
  for (const int bits : {4, 8}) {
    const int half = 1 << (bits - 1);
    for (std::int64_t size = 1; size <= 40; ++size) {
      std::vector<std::int8_t> codes(static_cast<std::size_t>(size));
      for (std::int8_t& code : codes) {
        code = static_cast<std::int8_t>(
            static_cast<int>(random() % (2 * half)) - half);
      }
      const auto words = static_cast<std::size_t>(words_for(size, bits));
      EXPECT_EQ(words, static_cast<std::size_t>((size * bits + 31) / 32));
      std::vector<std::byte> packed(words * 4, std::byte{0xAA});
      pack_row(codes, bits, packed);
      std::vector<std::int8_t> back(codes.size());
      unpack_row(packed, bits, back);
      EXPECT_EQ(back, codes);
      const std::size_t used = (codes.size() * bits + 7) / 8;
      for (std::size_t i = used; i < packed.size(); ++i) {
        EXPECT_EQ(packed[i], std::byte{0});
      }
    }
  }
}

// Whole vectors and every number of codes behind them.
TEST(Bits, EveryInstructionSetPacksTheSameBytes) {
  std::mt19937 random(5);
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (!cpu_has(isa)) {
      continue;
    }
    for (const int bits : {4, 8}) {
      for (std::size_t size = 1; size <= 200; ++size) {
        std::vector<std::int8_t> codes(size);
        for (std::int8_t& code : codes) {
          code = static_cast<std::int8_t>(random());
        }
        const auto bytes = static_cast<std::size_t>(
            4 * words_for(static_cast<std::int64_t>(size), bits));
        std::vector<std::byte> expected(bytes, std::byte{0xAA});
        std::vector<std::byte> found(bytes, std::byte{0x55});
        pack_row(codes, bits, expected, Isa::kPortable);
        pack_row(codes, bits, found, isa);
        ASSERT_EQ(found, expected) << size << " codes of " << bits;
      }
    }
  }
}

TEST(Bits, ColumnsComeBackForAnyNumberOfRows) {
  std::mt19937 random(11);
  for (const int bits : {4, 8}) {
    const int half = 1 << (bits - 1);
    for (std::int64_t rows = 1; rows <= 20; ++rows) {
      for (const std::int64_t groups : {1, 3}) {
        std::vector<std::int8_t> zeros(static_cast<std::size_t>(rows * groups));
        for (std::int8_t& zero : zeros) {
          zero = static_cast<std::int8_t>(
              static_cast<int>(random() % (2 * half)) - half);
        }
        std::vector<std::byte> packed(
            static_cast<std::size_t>(words_for(rows, bits) * groups * 4));
        pack_columns(zeros, groups, bits, packed);
        std::vector<std::int8_t> back(zeros.size());
        unpack_columns(packed, groups, bits, back);
        EXPECT_EQ(back, zeros);
      }
    }
  }
}

}  // namespace
}  // namespace nibble::quant::compressed_tensors
