#include "nibble/quant/schemes/integer/scheme.h"

#include <array>

#include "nibble/base/error.h"
#include "nibble/quant/core/shape_checks.h"
#include "nibble/quant/schemes/integer/affine.h"
#include "nibble/quant/schemes/integer/codes.h"
#include "nibble/quant/schemes/integer/linear.h"

namespace nibble::quant {
namespace integer {

Quantized encode(const NumberSpec& spec,
                 ConstTensorView weight,
                 const EncodeOptions& options,
                 Isa isa) {
  return encode_tile(
      spec,
      weight,
      options,
      code_functions(weight.dtype(), spec.scale_dtype, options.numerics, isa),
      isa);
}

}  // namespace integer

namespace {

class IntegerScheme final : public Scheme {
 public:
  [[nodiscard]] std::string_view name() const override { return "integer"; }

  [[nodiscard]] std::span<const std::string_view> recipe_names()
      const override {
    static constexpr std::array<std::string_view, 2> kNames{"int4", "int8"};
    return kNames;
  }

  [[nodiscard]] std::vector<SchemeRow> table() const override {
    const std::string groups = "32, 64, 128, 256, channel, tensor";
    const std::string inputs = "none or dynamic (int8 per token)";
    return {{"int4", groups, "yes or no", inputs, "smallest files"},
            {"int8", groups, "yes or no", inputs, "nearly lossless"}};
  }

  [[nodiscard]] NumberSpec dynamic_input(
      const NumberSpec& weight) const override {
    NumberSpec input;
    input.scheme = "int8";
    input.grain = Grain::kToken;
    input.scale_dtype = weight.scale_dtype;
    return input;
  }

  void check(const LayerSpec& spec,
             std::int64_t rows,
             std::int64_t columns) const override {
    if (spec.weight.real_zero) {
      affine::check(spec, rows, columns);
      return;
    }
    check_weight(spec.weight, rows, columns);
    if (spec.input) {
      check_input(*spec.input);
    }
  }

  [[nodiscard]] Quantized encode(const NumberSpec& spec,
                                 ConstTensorView weight,
                                 const EncodeOptions& options) const override {
    return spec.real_zero ? affine::encode(spec, weight, options)
                          : integer::encode(spec, weight, options, best_isa());
  }

  void decode_rows(const Quantized& quantized,
                   std::int64_t first,
                   std::int64_t count,
                   std::span<float> out) const override {
    if (quantized.spec.real_zero) {
      affine::decode_rows(quantized, first, count, out);
    } else {
      decode_grid_rows(
          quantized, first, count, out, integer::value_function(best_isa()));
    }
  }

  [[nodiscard]] std::unique_ptr<model::Linear> make_linear(
      const LayerSpec& spec,
      std::int64_t rows,
      std::int64_t columns,
      const RowSource& codes,
      std::optional<Tensor> bias,
      std::optional<Tensor> input_scale,
      backend::Backend& backend) const override {
    check(spec, rows, columns);
    if (spec.weight.real_zero) {
      return affine::make_linear(spec, rows, columns, codes, bias, backend);
    }
    return make_integer_linear(
        spec, rows, columns, codes, bias, input_scale, backend);
  }

 private:
  void check_weight(const NumberSpec& weight,
                    std::int64_t rows,
                    std::int64_t columns) const {
    const int bits = weight.scheme == "int4" ? 4 : 8;
    NIBBLE_CHECK(handles(weight) && !weight.floating && weight.bits == bits,
                 kUnsupported,
                 "scheme {}: found {} bits of type {}, expected {} bits of "
                 "type int",
                 weight.scheme,
                 weight.bits,
                 weight.floating ? "float" : "int",
                 bits);
    check_grain(weight,
                {Grain::kTensor, Grain::kChannel, Grain::kGroup},
                "group 32, 64, 128 or 256, channel or tensor");
    check_scale_dtype(weight);
    check_divides(weight, rows, columns);
  }

  static void check_input(const NumberSpec& input) {
    if (!input.floating && input.bits == 8 && input.symmetric &&
        (input.grain == Grain::kToken || input.grain == Grain::kTensor)) {
      return;
    }
    fail_with_hint(ErrorCode::kUnsupported,
                   "use dynamic activations or none",
                   "inputs of an integer layer: found {}, expected symmetric "
                   "int8 per token, or with one static scale",
                   describe(LayerSpec{input, std::nullopt}));
  }
};

}  // namespace

const Scheme& integer_scheme() {
  static const IntegerScheme scheme;
  return scheme;
}

}  // namespace nibble::quant
