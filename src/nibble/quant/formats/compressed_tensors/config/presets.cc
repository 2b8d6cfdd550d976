#include "nibble/quant/formats/compressed_tensors/config/presets.h"

#include <vector>

#include <fmt/format.h>

namespace nibble::quant::compressed_tensors {
namespace {

NumberSpec number(int bits, bool floating, Grain grain, std::int64_t group) {
  NumberSpec spec;
  spec.bits = bits;
  spec.floating = floating;
  spec.scheme = fmt::format("{}{}", floating ? "fp" : "int", bits);
  spec.grain = grain;
  spec.group = group;
  return spec;
}

std::vector<Preset> make_presets() {
  const NumberSpec int4 = number(4, false, Grain::kGroup, 128);
  const NumberSpec int8_group = number(8, false, Grain::kGroup, 128);
  const NumberSpec int8 = number(8, false, Grain::kChannel, 0);
  const NumberSpec int8_token = number(8, false, Grain::kToken, 0);
  const NumberSpec fp8 = number(8, true, Grain::kChannel, 0);
  const NumberSpec fp8_token = number(8, true, Grain::kToken, 0);
  const NumberSpec fp8_tensor = number(8, true, Grain::kTensor, 0);
  NumberSpec int4_asymmetric = int4;
  int4_asymmetric.symmetric = false;
  NumberSpec fp8_block = number(8, true, Grain::kBlock, 0);
  fp8_block.block_rows = fp8_block.block_columns = 128;
  std::vector<Preset> presets = {
      {"UNQUANTIZED", std::nullopt, false},
      {"W8A16", LayerSpec{int8_group, std::nullopt}, false},
      {"W4A16", LayerSpec{int4, std::nullopt}, false},
      {"W4A16_ASYM", LayerSpec{int4_asymmetric, std::nullopt}, false},
      {"W8A8", LayerSpec{int8, int8_token}, false},
      {"INT8", LayerSpec{int8, int8_token}, false},
      {"W4A8", LayerSpec{int4, int8_token}, false},
      {"FP8", LayerSpec{fp8_tensor, fp8_tensor}, false},
      {"FP8_DYNAMIC", LayerSpec{fp8, fp8_token}, false},
      {"FP8_BLOCK",
       LayerSpec{fp8_block, number(8, true, Grain::kGroup, 128)},
       false},
  };
  for (const char* name : {"W2A16",
                           "W3A16",
                           "W5A16",
                           "W6A16",
                           "W7A16",
                           "W4AFP8",
                           "NVFP4A16",
                           "NVFP4",
                           "MXFP4A16",
                           "MXFP4",
                           "MXFP8A16",
                           "MXFP8"}) {
    presets.push_back({name, std::nullopt, true});
  }
  return presets;
}

}  // namespace

const Preset* preset_named(std::string_view name) {
  static const std::vector<Preset> kPresets = make_presets();
  for (const Preset& preset : kPresets) {
    if (preset.name == name) {
      return &preset;
    }
  }
  return nullptr;
}

}  // namespace nibble::quant::compressed_tensors
