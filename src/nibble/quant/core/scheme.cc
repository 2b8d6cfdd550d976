#include "nibble/quant/core/scheme.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "nibble/base/error.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant {

bool Scheme::handles(const NumberSpec& spec) const {
  return std::ranges::count(recipe_names(), spec.scheme) != 0;
}

NumberSpec Scheme::spec_named(std::string_view name) const {
  NumberSpec spec;
  spec.scheme = std::string(name);
  const std::size_t digits = name.find_first_of("0123456789");
  NIBBLE_CHECK(digits != std::string_view::npos,
               kInternal,
               "scheme {}: found no number of bits in the name",
               name);
  std::from_chars(name.data() + digits, name.data() + name.size(), spec.bits);
  spec.floating = name.substr(0, digits) != "int";
  if (spec.bits < 8) {
    spec.grain = Grain::kGroup;
    spec.group = 128;
  }
  return spec;
}

void Scheme::decode(const Quantized& quantized, TensorView weight) const {
  NIBBLE_CHECK(weight.shape() == Shape({quantized.rows, quantized.columns}),
               kInternal,
               "decode: found room for {}, expected {} rows and {} columns",
               to_string(weight.shape()),
               quantized.rows,
               quantized.columns);
  if (weight.dtype() == DType::kF32) {
    decode_rows(quantized, 0, quantized.rows, weight.as<float>());
    return;
  }
  std::vector<float> row(static_cast<std::size_t>(quantized.columns));
  for (std::int64_t r = 0; r < quantized.rows; ++r) {
    decode_rows(quantized, r, 1, row);
    convert_from_float(row, weight.rows(r, 1));
  }
}

}  // namespace nibble::quant
