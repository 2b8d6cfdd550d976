#include "nibble/quant/core/kernels/vector_avx2.h"
// The loops use the vectors above.
#include "nibble/quant/core/kernels/range_loops.h"

namespace nibble::quant {

void bf16_ranges_avx2(const void* weight,
                      std::size_t runs,
                      std::size_t length,
                      float* low,
                      float* high) {
  ranges<Avx2>(weight, runs, length, low, high);
}

void bf16_magnitudes_avx2(const void* weight,
                          std::size_t runs,
                          std::size_t length,
                          float* low,
                          float* high) {
  magnitudes<Avx2>(weight, runs, length, low, high);
}

}  // namespace nibble::quant
