#include "nibble/quant/core/kernels/vector_avx2.h"
// The loops use the vectors above.
#include "nibble/quant/schemes/fp8/codes_loops.h"

namespace nibble::quant::fp8 {

const CodeKernels& code_kernels_avx2() {
  static constexpr CodeKernels kernels = make_kernels<Avx2, Fill>();
  return kernels;
}

void values_avx2(const std::uint8_t* codes,
                 std::size_t count,
                 float zero,
                 float scale,
                 float* out) {
  decode_run<Avx2, Value<Avx2>>(codes, count, zero, scale, out);
}

}  // namespace nibble::quant::fp8
