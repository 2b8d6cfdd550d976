#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "nibble/quant/core/number_spec.h"
#include "nibble/quant/schemes/common/input_loops.h"
#include "nibble/quant/schemes/integer/linear_kernels.h"
#include "nibble/tensor/view.h"

namespace nibble::quant {

// How a layer turns float32 activations into 16-bit codes.
struct InputCoding {
  const InputLoops* loops = &kInputLoopsPortable;
  // Nothing: activations are kept as they are, up to 16 bits with a scale of
  // their own for each block (error at most 2^-16 of the block's largest).
  // Floating: rounded to FP8 first, then the same. Integer of 8 bits: the
  // codes that the checkpoint declares, with the scale of the token or of the
  // tensor.
  std::optional<NumberSpec> spec;
  std::optional<float> static_scale;
  std::int64_t columns = 0;  // of the activations
  std::int64_t padded = 0;   // of the codes: a multiple of 8
  std::int64_t block = 0;
  std::int64_t blocks = 0;
  // What the kernels take: IntegerKernels::input_bits; 8 for int8 codes only.
  int bits = 16;
  int weight_bits = 4;
};

// kUnsupported for an input that InputCoding cannot do.
void check_integer_input(const NumberSpec& input);

// Codes of one token: codes (padded), scales and sums (blocks).
void encode_token(const InputCoding& coding,
                  std::span<const float> token,
                  std::span<std::int16_t> codes,
                  std::span<float> scales,
                  std::span<std::int32_t> sums);

// The activations of one forward call, in groups of tokens as kernels take
// them.
class CodedInputs {
 public:
  // x (tokens, columns) float32; group = most tokens of one IntegerInputs.
  CodedInputs(const InputCoding& coding,
              std::span<const float> x,
              std::int64_t tokens,
              std::int64_t group);

  [[nodiscard]] std::int64_t groups() const;
  // Valid as long as this object.
  [[nodiscard]] IntegerInputs operator[](std::int64_t group) const;

 private:
  void encode_group(const InputCoding& coding,
                    std::span<const float> x,
                    std::int64_t group);

  std::int64_t tokens_;
  std::int64_t group_;
  std::int64_t words_per_token_;
  std::int64_t blocks_;
  std::unique_ptr<std::int32_t[]> words_;
  std::vector<float> scales_;
  std::vector<std::int32_t> sums_;
};

}  // namespace nibble::quant
