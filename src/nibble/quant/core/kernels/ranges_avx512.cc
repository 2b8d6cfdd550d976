#include "nibble/quant/core/kernels/vector_avx512.h"
// The loops use the vectors above.
#include "nibble/quant/core/kernels/range_loops.h"

namespace nibble::quant {

void bf16_ranges_avx512(const void* weight,
                        std::size_t runs,
                        std::size_t length,
                        float* low,
                        float* high) {
  ranges<Avx512>(weight, runs, length, low, high);
}

void bf16_magnitudes_avx512(const void* weight,
                            std::size_t runs,
                            std::size_t length,
                            float* low,
                            float* high) {
  magnitudes<Avx512>(weight, runs, length, low, high);
}

}  // namespace nibble::quant
