#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "nibble/quant/core/number_spec.h"
#include "nibble/quant/schemes/common/input_loops.h"
#include "nibble/quant/schemes/fp8/linear_kernels.h"

namespace nibble::quant {

// How a layer prepares float32 activations.
struct InputRounding {
  const InputLoops* loops = &kInputLoopsPortable;
  std::optional<NumberSpec> spec;  // nothing = kept as they are
  std::optional<float> static_scale;
  std::int64_t columns = 0;  // of the activations
  std::int64_t padded = 0;   // a multiple of 4; zeros from columns on
};

// The activations of one forward call, in groups of tokens as kernels take
// them.
class RoundedInputs {
 public:
  // x (tokens, columns); group = most tokens of one Fp8Inputs; all values are
  // multiplied by factor, a power of two.
  RoundedInputs(const InputRounding& rounding,
                std::span<const float> x,
                std::int64_t tokens,
                std::int64_t group,
                float factor);

  [[nodiscard]] std::int64_t groups() const;
  // Valid as long as this object.
  [[nodiscard]] Fp8Inputs operator[](std::int64_t group) const;

 private:
  void round_group(const InputRounding& rounding,
                   std::span<const float> x,
                   std::int64_t group,
                   float factor);

  std::int64_t tokens_;
  std::int64_t group_;
  std::int64_t padded_;
  std::unique_ptr<float[]> values_;
};

}  // namespace nibble::quant
