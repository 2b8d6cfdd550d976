#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

// Only for sources built for AVX2, FMA and F16C: the anonymous namespace keeps
// code of that instruction set out of the rest of the program.
namespace nibble::quant {
namespace {

// 8 lanes of 32 bits, and blocks of 32 elements held as four vectors. Names as
// in vector_avx512.h.
struct Avx2 {
  using Float = __m256;
  using Int = __m256i;
  static constexpr std::size_t kLanes = 8;
  static constexpr std::size_t kBlock = 4 * kLanes;

  struct Block {
    Float part[4];
  };

  static Float set(float x) { return _mm256_set1_ps(x); }

  static Int set(int x) { return _mm256_set1_epi32(x); }

  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }

  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }

  static Float div(Float a, Float b) { return _mm256_div_ps(a, b); }

  static Float fma(Float a, Float b, Float c) {
    return _mm256_fmadd_ps(a, b, c);
  }

  static Float fnma(Float a, Float b, Float c) {
    return _mm256_fnmadd_ps(a, b, c);
  }

  static Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }

  static Int max(Int a, Int b) { return _mm256_max_epi32(a, b); }

  static Int sub(Int a, Int b) { return _mm256_sub_epi32(a, b); }

  static Int bit_and(Int a, Int b) { return _mm256_and_si256(a, b); }

  static Int bit_xor(Int a, Int b) { return _mm256_xor_si256(a, b); }

  static Int bit_or(Int a, Int b) { return _mm256_or_si256(a, b); }

  template <int kBits>
  static Int shift_right(Int a) {
    return _mm256_srli_epi32(a, kBits);
  }

  template <int kBits>
  static Int shift_left(Int a) {
    return _mm256_slli_epi32(a, kBits);
  }

  // All ones in lanes that are equal.
  static Int equal(Int a, Int b) { return _mm256_cmpeq_epi32(a, b); }

  // kLanes signed bytes.
  static Int widen_i8(const std::uint8_t* from) {
    return _mm256_cvtepi8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }

  static Float to_float(Int a) { return _mm256_cvtepi32_ps(a); }

  static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }

  static void store_f32(float* to, Float a) { _mm256_storeu_ps(to, a); }

  static Float load_f32_or_one(const float* from, std::size_t count) {
    const Int mask =
        _mm256_cmpgt_epi32(set(static_cast<int>(count)),
                           _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_blendv_ps(
        set(1.0F), _mm256_maskload_ps(from, mask), _mm256_castsi256_ps(mask));
  }

  static Int bits(Float a) { return _mm256_castps_si256(a); }

  static Float floats(Int a) { return _mm256_castsi256_ps(a); }

  static Int nearest(Float a) { return _mm256_cvtps_epi32(a); }

  static Float round_f16(Float a) {
    return _mm256_cvtph_ps(
        _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  static Int pack32(Int a, Int b) { return _mm256_packs_epi32(a, b); }

  static Int pack16(Int a, Int b) { return _mm256_packs_epi16(a, b); }

  static Int pack16_unsigned(Int a, Int b) { return _mm256_packus_epi16(a, b); }

  static Int join_words(Int even, Int odd) {
    return _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xAA);
  }

  static Int set16(int x) {
    return _mm256_set1_epi16(static_cast<std::int16_t>(x));
  }

  static Int add16(Int a, Int b) { return _mm256_adds_epi16(a, b); }

  static Int max16_unsigned(Int a, Int b) { return _mm256_max_epu16(a, b); }

  static Int max16(Int a, Int b) { return _mm256_max_epi16(a, b); }

  static unsigned greatest16_unsigned(Int a) {
    const __m128i words = _mm_max_epu16(_mm256_castsi256_si128(a),
                                        _mm256_extracti128_si256(a, 1));
    // The complement of the least complement.
    const __m128i flipped = _mm_xor_si128(words, _mm_set1_epi32(-1));
    return 0xFFFFU ^ static_cast<unsigned>(
                         _mm_extract_epi16(_mm_minpos_epu16(flipped), 0));
  }

  static Int add16_unsigned(Int a, Int b) { return _mm256_adds_epu16(a, b); }

  static Int sub16_unsigned(Int a, Int b) { return _mm256_subs_epu16(a, b); }

  template <int kBits>
  static Int shift_right16(Int a) {
    return _mm256_srli_epi16(a, kBits);
  }

  static Int look_up8(Int table, Int index) {
    return _mm256_shuffle_epi8(table, index);
  }

  static Int load_table(const std::uint8_t* from) {
    return _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }

  static bool all_at_least8(Int a, int least) {
    const Int limit = _mm256_set1_epi8(static_cast<char>(least));
    return _mm256_movemask_epi8(
               _mm256_cmpeq_epi8(_mm256_min_epu8(a, limit), limit)) == -1;
  }

  static Int min8_unsigned(Int a, int most) {
    return _mm256_min_epu8(a, _mm256_set1_epi8(static_cast<char>(most)));
  }

  static Int clamp8(Int a, int low, int high) {
    a = _mm256_max_epi8(a, _mm256_set1_epi8(static_cast<char>(low)));
    return _mm256_min_epi8(a, _mm256_set1_epi8(static_cast<char>(high)));
  }

  static Int order_pairs(Int a) {
    const Int interleave = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(a, interleave),
                                    _MM_SHUFFLE(3, 1, 2, 0));
  }

  static Int order_parts(Int a) {
    return _mm256_permutevar8x32_epi32(
        a, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }

  static Int order_words(Int a) {
    return _mm256_permute4x64_epi64(a, _MM_SHUFFLE(3, 1, 2, 0));
  }

  static Int load_words(const std::uint16_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }

  static void store(std::uint8_t* to, Int bytes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
  }

  static Block load_bf16(const std::uint16_t* from) {
    const Int high = _mm256_set1_epi32(static_cast<int>(0xFFFF0000U));
    const Int a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const Int b =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 16));
    return {{floats(_mm256_slli_epi32(a, 16)),
             floats(_mm256_and_si256(a, high)),
             floats(_mm256_slli_epi32(b, 16)),
             floats(_mm256_and_si256(b, high))}};
  }

  // Partly filled blocks go through a copy.
  static Block load_bf16_part(const std::uint16_t* from, std::size_t count) {
    std::uint16_t copy[kBlock] = {};
    __builtin_memcpy(copy, from, count * sizeof(std::uint16_t));
    return load_bf16(copy);
  }

  static Block load_f16_part(const std::uint16_t* from, std::size_t count) {
    std::uint16_t copy[kBlock] = {};
    __builtin_memcpy(copy, from, count * sizeof(std::uint16_t));
    return load_f16(copy);
  }

  static Block load_f32_part(const float* from, std::size_t count) {
    float copy[kBlock] = {};
    __builtin_memcpy(copy, from, count * sizeof(float));
    return load_f32(copy);
  }

  static void store_part(std::uint8_t* to, Int bytes, std::size_t count) {
    std::uint8_t copy[kBlock];
    store(copy, bytes);
    __builtin_memcpy(to, copy, count);
  }

  static Float load_f16_lanes(const std::uint16_t* from) {
    return _mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }

  static Block load_f16(const std::uint16_t* from) {
    return {{load_f16_lanes(from),
             load_f16_lanes(from + 8),
             load_f16_lanes(from + 16),
             load_f16_lanes(from + 24)}};
  }

  static Block load_f32(const float* from) {
    return {{_mm256_loadu_ps(from),
             _mm256_loadu_ps(from + 8),
             _mm256_loadu_ps(from + 16),
             _mm256_loadu_ps(from + 24)}};
  }
};

}  // namespace
}  // namespace nibble::quant
