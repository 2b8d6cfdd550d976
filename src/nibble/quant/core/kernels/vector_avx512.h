#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include "nibble/quant/core/kernels/vector_avx2.h"

// Only for sources built for AVX-512: the anonymous namespace keeps code of
// that instruction set out of the rest of the program.
namespace nibble::quant {
namespace {

// 16 lanes of 32 bits, and blocks of 64 elements held as four vectors.
struct Avx512 {
  using Float = __m512;
  using Int = __m512i;
  using Narrow = Avx2;
  static constexpr std::size_t kLanes = 16;
  static constexpr std::size_t kBlock = 4 * kLanes;

  struct Block {
    Float part[4];
  };

  static Float set(float x) { return _mm512_set1_ps(x); }

  static Int set(int x) { return _mm512_set1_epi32(x); }

  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }

  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }

  static Float div(Float a, Float b) { return _mm512_div_ps(a, b); }

  // a * b + c
  static Float fma(Float a, Float b, Float c) {
    return _mm512_fmadd_ps(a, b, c);
  }

  // c - a * b
  static Float fnma(Float a, Float b, Float c) {
    return _mm512_fnmadd_ps(a, b, c);
  }

  static Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }

  static Int max(Int a, Int b) { return _mm512_max_epi32(a, b); }

  static Int sub(Int a, Int b) { return _mm512_sub_epi32(a, b); }

  static Int bit_and(Int a, Int b) { return _mm512_and_si512(a, b); }

  static Int bit_xor(Int a, Int b) { return _mm512_xor_si512(a, b); }

  static Int bit_or(Int a, Int b) { return _mm512_or_si512(a, b); }

  template <int kBits>
  static Int shift_right(Int a) {
    return _mm512_srli_epi32(a, kBits);
  }

  template <int kBits>
  static Int shift_left(Int a) {
    return _mm512_slli_epi32(a, kBits);
  }

  // All ones in lanes that are equal.
  static Int equal(Int a, Int b) {
    return _mm512_movm_epi32(_mm512_cmpeq_epi32_mask(a, b));
  }

  // kLanes signed bytes.
  static Int widen_i8(const std::uint8_t* from) {
    return _mm512_cvtepi8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }

  static Float to_float(Int a) { return _mm512_cvtepi32_ps(a); }

  static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }

  static void store_f32(float* to, Float a) { _mm512_storeu_ps(to, a); }

  // The first count floats, and 1 in lanes beyond.
  static Float load_f32_or_one(const float* from, std::size_t count) {
    const auto mask = static_cast<__mmask16>(part_mask(count));
    return _mm512_mask_loadu_ps(set(1.0F), mask, from);
  }

  static Int bits(Float a) { return _mm512_castps_si512(a); }

  static Float floats(Int a) { return _mm512_castsi512_ps(a); }

  // Nearest integer, ties to even.
  static Int nearest(Float a) { return _mm512_cvtps_epi32(a); }

  static Float round_f16(Float a) {
    return _mm512_cvtph_ps(
        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  // 32-bit to 16-bit to 8-bit lanes with saturation, lanes interleaved in
  // 128-bit parts; order_pairs and order_parts undo that.
  static Int pack32(Int a, Int b) { return _mm512_packs_epi32(a, b); }

  static Int pack16(Int a, Int b) { return _mm512_packs_epi16(a, b); }

  static Int pack16_unsigned(Int a, Int b) { return _mm512_packus_epi16(a, b); }

  // The lower words of a pair of vectors that hold even and odd elements.
  static Int join_words(Int even, Int odd) {
    return _mm512_mask_blend_epi16(
        0xAAAAAAAA, even, _mm512_slli_epi32(odd, 16));
  }

  static Int set16(int x) {
    return _mm512_set1_epi16(static_cast<std::int16_t>(x));
  }

  static Int add16(Int a, Int b) { return _mm512_adds_epi16(a, b); }

  static Int max16_unsigned(Int a, Int b) { return _mm512_max_epu16(a, b); }

  static Int max16(Int a, Int b) { return _mm512_max_epi16(a, b); }

  // The greatest word, unsigned.
  static unsigned greatest16_unsigned(Int a) {
    const __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(a),
                                          _mm512_extracti64x4_epi64(a, 1));
    const __m128i words = _mm_max_epu16(_mm256_castsi256_si128(half),
                                        _mm256_extracti128_si256(half, 1));
    // The complement of the least complement.
    const __m128i flipped = _mm_xor_si128(words, _mm_set1_epi32(-1));
    return 0xFFFFU ^ static_cast<unsigned>(
                         _mm_extract_epi16(_mm_minpos_epu16(flipped), 0));
  }

  static Int add16_unsigned(Int a, Int b) { return _mm512_adds_epu16(a, b); }

  static Int sub16_unsigned(Int a, Int b) { return _mm512_subs_epu16(a, b); }

  template <int kBits>
  static Int shift_right16(Int a) {
    return _mm512_srli_epi16(a, kBits);
  }

  // For each byte of index the byte of the 16 in table that its low four bits
  // name, or zero where its top bit is set.
  static Int look_up8(Int table, Int index) {
    return _mm512_shuffle_epi8(table, index);
  }

  static Int load_table(const std::uint8_t* from) {
    return _mm512_broadcast_i32x4(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }

  static bool all_at_least8(Int a, int least) {
    return _mm512_cmplt_epu8_mask(
               a, _mm512_set1_epi8(static_cast<char>(least))) == 0;
  }

  static Int min8_unsigned(Int a, int most) {
    return _mm512_min_epu8(a, _mm512_set1_epi8(static_cast<char>(most)));
  }

  static Int clamp8(Int a, int low, int high) {
    a = _mm512_max_epi8(a, _mm512_set1_epi8(static_cast<char>(low)));
    return _mm512_min_epi8(a, _mm512_set1_epi8(static_cast<char>(high)));
  }

  // Bytes of a block whose parts hold even and odd elements of each half.
  static Int order_pairs(Int a) {
    const Int interleave = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
    const Int halves = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return _mm512_permutexvar_epi64(halves, _mm512_shuffle_epi8(a, interleave));
  }

  // Bytes of a block whose parts hold a quarter each.
  static Int order_parts(Int a) {
    const Int quarters =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(quarters, a);
  }

  // Bytes of a block that is packed from its halves, words in order.
  static Int order_words(Int a) {
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7),
                                    a);
  }

  // The words of half a block.
  static Int load_words(const std::uint16_t* from) {
    return _mm512_loadu_si512(from);
  }

  static void store(std::uint8_t* to, Int bytes) {
    _mm512_storeu_si512(to, bytes);
  }

  // Parts: even and odd elements of the first half, then of the second.
  static Block load_bf16(const std::uint16_t* from) {
    const Int high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
    const Int a = _mm512_loadu_si512(from);
    const Int b = _mm512_loadu_si512(from + 32);
    return {{floats(_mm512_slli_epi32(a, 16)),
             floats(_mm512_and_si512(a, high)),
             floats(_mm512_slli_epi32(b, 16)),
             floats(_mm512_and_si512(b, high))}};
  }

  // The first count elements; the rest of the block is zero.
  static Block load_bf16_part(const std::uint16_t* from, std::size_t count) {
    const Int high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
    const std::uint64_t mask = part_mask(count);
    const Int a = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask), from);
    const Int b =
        _mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask >> 32), from + 32);
    return {{floats(_mm512_slli_epi32(a, 16)),
             floats(_mm512_and_si512(a, high)),
             floats(_mm512_slli_epi32(b, 16)),
             floats(_mm512_and_si512(b, high))}};
  }

  static void store_part(std::uint8_t* to, Int bytes, std::size_t count) {
    _mm512_mask_storeu_epi8(to, part_mask(count), bytes);
  }

  static std::uint64_t part_mask(std::size_t count) {
    return ~std::uint64_t{0} >> (64 - count);
  }

  static Block load_f16_part(const std::uint16_t* from, std::size_t count) {
    const std::uint64_t mask = part_mask(count);
    const auto lanes = [&](int first) {
      return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(
          static_cast<__mmask16>(mask >> first), from + first));
    };
    return {{lanes(0), lanes(16), lanes(32), lanes(48)}};
  }

  static Block load_f32_part(const float* from, std::size_t count) {
    const std::uint64_t mask = part_mask(count);
    const auto lanes = [&](int first) {
      return _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> first),
                                   from + first);
    };
    return {{lanes(0), lanes(16), lanes(32), lanes(48)}};
  }

  static Float load_f16_lanes(const std::uint16_t* from) {
    return _mm512_cvtph_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }

  static Block load_f16(const std::uint16_t* from) {
    return {{load_f16_lanes(from),
             load_f16_lanes(from + 16),
             load_f16_lanes(from + 32),
             load_f16_lanes(from + 48)}};
  }

  static Block load_f32(const float* from) {
    return {{_mm512_loadu_ps(from),
             _mm512_loadu_ps(from + 16),
             _mm512_loadu_ps(from + 32),
             _mm512_loadu_ps(from + 48)}};
  }
};

}  // namespace
}  // namespace nibble::quant
