#include "nibble/quant/core/vector_avx2.h"
// The loops use the vectors above.
#include "nibble/quant/schemes/fp8/codes_loops.h"

namespace nibble::quant::fp8 {

const CodeKernels& code_kernels_avx2() {
  static constexpr CodeKernels kernels = make_kernels<Avx2, Fill>();
  return kernels;
}

}  // namespace nibble::quant::fp8
