#include <immintrin.h>

#include "nibble/quant/formats/compressed_tensors/bits/bits_x86.h"

namespace nibble::quant::compressed_tensors {
namespace {

constexpr std::size_t kBytes = 32;

__m256i load(const std::uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

void store(std::uint8_t* to, __m256i bytes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
}

// Words of even + 16 * odd.
__m256i pairs(__m256i codes) {
  const __m256i low = _mm256_and_si256(codes, _mm256_set1_epi8(0x0F));
  return _mm256_maddubs_epi16(low, _mm256_set1_epi16(0x1001));
}

}  // namespace

std::size_t pack4_avx2(const std::uint8_t* codes,
                       std::size_t count,
                       std::uint8_t* out) {
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x88));
  std::size_t i = 0;
  for (; i + 2 * kBytes <= count; i += 2 * kBytes) {
    const __m256i packed = _mm256_packus_epi16(pairs(load(codes + i)),
                                               pairs(load(codes + i + kBytes)));
    const __m256i ordered =
        _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0));
    store(out + i / 2, _mm256_xor_si256(ordered, flip));
  }
  return i;
}

std::size_t pack8_avx2(const std::uint8_t* codes,
                       std::size_t count,
                       std::uint8_t* out) {
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
  std::size_t i = 0;
  for (; i + kBytes <= count; i += kBytes) {
    store(out + i, _mm256_xor_si256(load(codes + i), flip));
  }
  return i;
}

}  // namespace nibble::quant::compressed_tensors
