#include "nibble/quant/schemes/common/fp8_grid.h"

#include <algorithm>
#include <limits>

#include "nibble/base/error.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {

const InputLoops& input_loops(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) {
    return kInputLoopsAvx512;
  }
  if (isa == Isa::kAvx2) {
    return kInputLoopsAvx2;
  }
#endif
  NIBBLE_ASSERT(isa == Isa::kPortable);
  return kInputLoopsPortable;
}

void round_token_to_fp8(const InputLoops& loops,
                        std::span<const float> token,
                        const NumberSpec& input,
                        std::optional<float> static_scale,
                        std::span<float> rounded) {
  NIBBLE_ASSERT(token.size() == rounded.size());
  const auto columns = static_cast<std::int64_t>(token.size());
  const std::int64_t run = input.grain == Grain::kGroup ? input.group : columns;
  for (std::int64_t first = 0; first < columns; first += run) {
    const std::int64_t count = std::min(run, columns - first);
    const float* values = token.data() + first;
    float scale = 0;
    if (static_scale) {
      scale = *static_scale;
    } else {
      float greatest = loops.absolute_maximum(values, count);
      if (input.upper_bound > 0 && greatest > input.upper_bound) {
        greatest = input.upper_bound;
      }
      scale = greatest / kF8E4M3Max;
      // For an all-zero run any positive number does.
      scale = scale == 0 ? std::numeric_limits<float>::epsilon() : scale;
    }
    loops.round_fp8(values, count, scale, rounded.data() + first);
  }
}

}  // namespace nibble::quant
