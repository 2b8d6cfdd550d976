#include <immintrin.h>

#include "nibble/quant/pipeline/matrix/error_lanes.h"

namespace nibble::quant {
namespace {

constexpr std::size_t kHalf = kErrorLanes / 2;

__m256 load(const float* from) {
  return _mm256_loadu_ps(from);
}

__m256 load(const std::uint16_t* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// Eight lanes of the sixteen; two make a step.
struct Half {
  __m256 error = _mm256_setzero_ps();
  __m256 weight = _mm256_setzero_ps();
  __m256 decoded = _mm256_setzero_ps();
  __m256 product = _mm256_setzero_ps();
  __m256 most = _mm256_setzero_ps();

  void add(__m256 w, __m256 d) {
    const __m256 e = _mm256_sub_ps(w, d);
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), e);
    error = _mm256_add_ps(error, _mm256_mul_ps(e, e));
    weight = _mm256_add_ps(weight, _mm256_mul_ps(w, w));
    decoded = _mm256_add_ps(decoded, _mm256_mul_ps(d, d));
    product = _mm256_add_ps(product, _mm256_mul_ps(w, d));
    most = _mm256_max_ps(most, magnitude);
  }

  void store(ErrorLanes& lanes, std::size_t lane) const {
    _mm256_storeu_ps(lanes.error + lane, error);
    _mm256_storeu_ps(lanes.weight + lane, weight);
    _mm256_storeu_ps(lanes.decoded + lane, decoded);
    _mm256_storeu_ps(lanes.product + lane, product);
    _mm256_storeu_ps(lanes.max_abs + lane, most);
  }
};

template <typename T>
void errors(const void* weight,
            const float* decoded,
            std::size_t steps,
            ErrorLanes& lanes) {
  const auto* from = static_cast<const T*>(weight);
  Half low;
  Half high;
  for (std::size_t i = 0; i < steps * kErrorLanes; i += kErrorLanes) {
    low.add(load(from + i), _mm256_loadu_ps(decoded + i));
    high.add(load(from + i + kHalf), _mm256_loadu_ps(decoded + i + kHalf));
  }
  low.store(lanes, 0);
  high.store(lanes, kHalf);
}

}  // namespace

void f32_errors_avx2(const void* weight,
                     const float* decoded,
                     std::size_t steps,
                     ErrorLanes& lanes) {
  errors<float>(weight, decoded, steps, lanes);
}

void bf16_errors_avx2(const void* weight,
                      const float* decoded,
                      std::size_t steps,
                      ErrorLanes& lanes) {
  errors<std::uint16_t>(weight, decoded, steps, lanes);
}

}  // namespace nibble::quant
