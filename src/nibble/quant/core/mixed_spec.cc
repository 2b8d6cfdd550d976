#include "nibble/quant/core/mixed_spec.h"

#include "nibble/base/error.h"

namespace nibble::quant {
namespace {

// Largest magnitude of an activation that Meta's code takes into account.
constexpr float kInputBound = 1200;

}  // namespace

std::int64_t int4_mixed_group(std::int64_t rank_inputs) {
  for (const std::int64_t group : {128, 64, 32}) {
    if (rank_inputs % group == 0) {
      return group;
    }
  }
  fail_with_hint(ErrorCode::kUnsupported,
                 "give a smaller number of --shards",
                 "int4: found {} inputs of an expert in a rank, expected a "
                 "multiple of 32",
                 rank_inputs);
}

LayerSpec int4_mixed_spec(std::int64_t group) {
  LayerSpec spec;
  spec.weight.scheme = "int4";
  spec.weight.bits = 4;
  spec.weight.grain = Grain::kGroup;
  spec.weight.group = group;
  spec.weight.scale_dtype = DType::kF32;
  return spec;
}

LayerSpec fp8_mixed_spec(std::int64_t inputs, std::int64_t rank_inputs) {
  LayerSpec spec;
  spec.weight.scheme = "fp8";
  spec.weight.floating = true;
  spec.weight.scale_dtype = DType::kF32;
  NumberSpec input = spec.weight;
  input.grain = Grain::kToken;
  input.upper_bound = kInputBound;
  if (rank_inputs != inputs) {
    spec.weight.grain = Grain::kBlock;
    spec.weight.block_rows = 1;
    spec.weight.block_columns = rank_inputs;
    input.grain = Grain::kGroup;
    input.group = rank_inputs;
  }
  spec.input = input;
  return spec;
}

}  // namespace nibble::quant
