#include "nibble/quant/formats/compressed_tensors/bits/bits.h"

#include <algorithm>
#include <cstring>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/quant/formats/compressed_tensors/bits/bits_x86.h"

namespace nibble::quant::compressed_tensors {
namespace {

std::uint32_t load_word(std::span<const std::byte> words, std::size_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, words.data() + index * sizeof word, sizeof word);
  return word;
}

void store_word(std::span<std::byte> words,
                std::size_t index,
                std::uint32_t word) {
  std::memcpy(words.data() + index * sizeof word, &word, sizeof word);
}

// u of a code: adding half the range flips the top bit of the low `bits`.
std::uint32_t stored(std::int8_t code, int bits) {
  const std::uint32_t mask = (1U << bits) - 1U;
  return (static_cast<std::uint32_t>(code) & mask) ^ (1U << (bits - 1));
}

std::int8_t code_of(std::uint32_t stored_code, int bits) {
  return static_cast<std::int8_t>(static_cast<int>(stored_code) -
                                  (1 << (bits - 1)));
}

}  // namespace

std::int64_t words_for(std::int64_t count, int bits) {
  return divide_up(count, static_cast<std::int64_t>(32 / bits));
}

void pack_row(std::span<const std::int8_t> codes,
              int bits,
              std::span<std::byte> words,
              Isa isa) {
  NIBBLE_ASSERT(bits == 4 || bits == 8);
  const auto* in = reinterpret_cast<const std::uint8_t*>(codes.data());
  auto* out = reinterpret_cast<std::uint8_t*>(words.data());
  const std::size_t count = codes.size();
  std::size_t i = 0;
#if defined(__x86_64__)
  if (isa != Isa::kPortable) {
    i = (bits == 4 ? pack4_avx2 : pack8_avx2)(in, count, out);
  }
#else
  static_cast<void>(isa);
#endif
  if (bits == 8) {
    for (; i < count; ++i) {
      out[i] = static_cast<std::uint8_t>(in[i] ^ 0x80U);
    }
    std::fill(out + count, out + words.size(), std::uint8_t{0});
    return;
  }
  for (; i + 2 <= count; i += 2) {
    out[i / 2] = static_cast<std::uint8_t>(
        ((in[i] & 0x0FU) | ((in[i + 1] & 0x0FU) << 4)) ^ 0x88U);
  }
  std::fill(out + i / 2, out + words.size(), std::uint8_t{0});
  if (i < count) {
    out[i / 2] = static_cast<std::uint8_t>((in[i] & 0x0FU) ^ 0x08U);
  }
}

void unpack_row(std::span<const std::byte> words,
                int bits,
                std::span<std::int8_t> codes) {
  NIBBLE_ASSERT(bits == 4 || bits == 8);
  const auto* in = reinterpret_cast<const std::uint8_t*>(words.data());
  std::int8_t* out = codes.data();
  const std::size_t count = codes.size();
  if (bits == 8) {
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = static_cast<std::int8_t>(in[i] ^ 0x80U);
    }
    return;
  }
  const std::size_t pairs = count / 2;
  for (std::size_t i = 0; i < pairs; ++i) {
    out[2 * i] = static_cast<std::int8_t>((in[i] & 0x0F) - 8);
    out[2 * i + 1] = static_cast<std::int8_t>((in[i] >> 4) - 8);
  }
  if (count % 2 != 0) {
    out[count - 1] = static_cast<std::int8_t>((in[pairs] & 0x0F) - 8);
  }
}

void pack_columns(std::span<const std::int8_t> zeros,
                  std::int64_t groups,
                  int bits,
                  std::span<std::byte> words) {
  const auto width = static_cast<std::size_t>(groups);
  const std::size_t rows = zeros.size() / width;
  const auto per_word = static_cast<std::size_t>(32 / bits);
  for (std::size_t index = 0; index < words.size() / 4; ++index) {
    const std::size_t first = index / width * per_word;
    const std::size_t group = index % width;
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < per_word && first + i < rows; ++i) {
      word |= stored(zeros[(first + i) * width + group], bits)
              << (i * static_cast<std::size_t>(bits));
    }
    store_word(words, index, word);
  }
}

void unpack_columns(std::span<const std::byte> words,
                    std::int64_t groups,
                    int bits,
                    std::span<std::int8_t> zeros) {
  const auto width = static_cast<std::size_t>(groups);
  const auto per_word = static_cast<std::size_t>(32 / bits);
  const std::uint32_t mask = (1U << bits) - 1U;
  for (std::size_t i = 0; i < zeros.size(); ++i) {
    const std::size_t row = i / width;
    const std::uint32_t word =
        load_word(words, row / per_word * width + i % width);
    const std::size_t shift = row % per_word * static_cast<std::size_t>(bits);
    zeros[i] = code_of((word >> shift) & mask, bits);
  }
}

}  // namespace nibble::quant::compressed_tensors
