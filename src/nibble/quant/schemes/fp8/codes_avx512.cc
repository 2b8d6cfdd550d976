#include "nibble/quant/core/kernels/vector_avx512.h"
// The loops use the vectors above.
#include "nibble/quant/schemes/fp8/codes_loops.h"

namespace nibble::quant::fp8 {

const CodeKernels& code_kernels_avx512() {
  static constexpr CodeKernels kernels = make_kernels<Avx512, Fill>();
  return kernels;
}

void values_avx512(const std::uint8_t* codes,
                   std::size_t count,
                   float zero,
                   float scale,
                   float* out) {
  decode_run<Avx512, Value<Avx512>>(codes, count, zero, scale, out);
}

}  // namespace nibble::quant::fp8
