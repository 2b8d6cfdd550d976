#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nibble/quant/core/scheme.h"

namespace nibble::quant {

// What an algorithm has to know about a layer's inputs before it can choose
// codes. Calibration collects what is asked and nothing else.
enum class Needs { kNothing, kChannelMagnitudes, kHessian };

// What calibration collected for the layers that share one input.
struct Statistics {
  Tensor channel_magnitudes;  // (in) float32
  Tensor hessian;             // (in, in) float32
  std::int64_t tokens = 0;
};

// Tiles of rows of layers that share one input, to be encoded alike.
struct LayerJob {
  struct Member {
    std::string module;
    NumberSpec spec;
    ConstTensorView weight;  // (rows, in)
    EncodeOptions options;
  };
  std::vector<Member> members;
};

// Chooses codes; names no scheme and no format. Stateless; thread-safe.
class Algorithm {
 public:
  virtual ~Algorithm() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual Needs needs() const = 0;
  // Whether rows may be encoded apart from each other: then a member's weight
  // may be any tile of rows, and no whole matrix is held.
  [[nodiscard]] virtual bool row_separable() const = 0;
  // One result a member.
  [[nodiscard]] virtual std::vector<Quantized> run(
      const LayerJob& job,
      const Scheme& scheme,
      const Statistics* statistics) const = 0;
};

}  // namespace nibble::quant
