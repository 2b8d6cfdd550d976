#include "nibble/quant/core/vector_avx2.h"
// The loops use the vectors above.
#include "nibble/quant/schemes/integer/codes_loops.h"

namespace nibble::quant::integer {

const CodeKernels& code_kernels_avx2() {
  return kernels<Avx2>;
}

}  // namespace nibble::quant::integer
