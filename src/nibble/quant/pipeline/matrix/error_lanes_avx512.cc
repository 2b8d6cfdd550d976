#include <immintrin.h>

#include "nibble/quant/pipeline/matrix/error_lanes.h"

namespace nibble::quant {
namespace {

__m512 load(const float* from) {
  return _mm512_loadu_ps(from);
}

__m512 load(const std::uint16_t* from) {
  const __m256i bits =
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <typename T>
void errors(const void* weight,
            const float* decoded,
            std::size_t steps,
            ErrorLanes& lanes) {
  const auto* from = static_cast<const T*>(weight);
  __m512 error = _mm512_setzero_ps();
  __m512 weights = error;
  __m512 values = error;
  __m512 product = error;
  __m512 most = error;
  for (std::size_t i = 0; i < steps * kErrorLanes; i += kErrorLanes) {
    const __m512 w = load(from + i);
    const __m512 d = _mm512_loadu_ps(decoded + i);
    const __m512 e = _mm512_sub_ps(w, d);
    error = _mm512_add_ps(error, _mm512_mul_ps(e, e));
    weights = _mm512_add_ps(weights, _mm512_mul_ps(w, w));
    values = _mm512_add_ps(values, _mm512_mul_ps(d, d));
    product = _mm512_add_ps(product, _mm512_mul_ps(w, d));
    most = _mm512_max_ps(most, _mm512_abs_ps(e));
  }
  _mm512_storeu_ps(lanes.error, error);
  _mm512_storeu_ps(lanes.weight, weights);
  _mm512_storeu_ps(lanes.decoded, values);
  _mm512_storeu_ps(lanes.product, product);
  _mm512_storeu_ps(lanes.max_abs, most);
}

}  // namespace

void f32_errors_avx512(const void* weight,
                       const float* decoded,
                       std::size_t steps,
                       ErrorLanes& lanes) {
  errors<float>(weight, decoded, steps, lanes);
}

void bf16_errors_avx512(const void* weight,
                        const float* decoded,
                        std::size_t steps,
                        ErrorLanes& lanes) {
  errors<std::uint16_t>(weight, decoded, steps, lanes);
}

}  // namespace nibble::quant
