#include "nibble/quant/core/format.h"

namespace nibble::quant {

LayerSpec Format::settled(LayerSpec spec,
                          std::string_view /*module*/,
                          std::int64_t /*columns*/,
                          DType source) const {
  // Engines expect scales in the type of the weights that they replace.
  spec.weight.scale_dtype = source;
  return spec;
}

Format::Numbers Format::numbers_in(const LayerSpec& /*spec*/,
                                   const container::TensorInfo& tensor) const {
  if (is_weight_dtype(tensor.dtype)) {
    return Numbers::kScales;
  }
  return tensor.dtype == DType::kF8E4M3 ? Numbers::kFp8Codes : Numbers::kAny;
}

}  // namespace nibble::quant
