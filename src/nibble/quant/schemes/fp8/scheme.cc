#include "nibble/quant/schemes/fp8/scheme.h"

#include <array>

#include "nibble/base/error.h"
#include "nibble/quant/core/shape_checks.h"
#include "nibble/quant/schemes/fp8/codes.h"
#include "nibble/quant/schemes/fp8/linear.h"

namespace nibble::quant {
namespace fp8 {

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

}  // namespace fp8

namespace {

class Fp8Scheme final : public Scheme {
 public:
  [[nodiscard]] std::string_view name() const override { return "fp8"; }

  [[nodiscard]] std::span<const std::string_view> recipe_names()
      const override {
    static constexpr std::array<std::string_view, 1> kNames{"fp8"};
    return kNames;
  }

  [[nodiscard]] std::vector<SchemeRow> table() const override {
    return {{"fp8",
             "channel, tensor",
             "yes",
             "none or dynamic (fp8 per token)",
             "nearly lossless"},
            {"fp8",
             "[128, 128]",
             "yes",
             "none or dynamic (fp8 per token and 128 columns)",
             "columns must be a multiple of 128"}};
  }

  // Blocks go with inputs of as many columns, so that a product has one scale.
  [[nodiscard]] NumberSpec dynamic_input(
      const NumberSpec& weight) const override {
    NumberSpec input;
    input.scheme = "fp8";
    input.floating = true;
    input.scale_dtype = weight.scale_dtype;
    if (weight.grain == Grain::kBlock) {
      input.grain = Grain::kGroup;
      input.group = weight.block_columns;
    } else {
      input.grain = Grain::kToken;
    }
    return input;
  }

  void check(const LayerSpec& spec,
             std::int64_t rows,
             std::int64_t columns) const override {
    check_weight(spec.weight, rows, columns);
    if (spec.input) {
      check_input(spec.weight, *spec.input, rows, columns);
    }
  }

  [[nodiscard]] Quantized encode(const NumberSpec& spec,
                                 ConstTensorView weight,
                                 const EncodeOptions& options) const override {
    return fp8::encode(spec, weight, options, best_isa());
  }

  void decode_rows(const Quantized& quantized,
                   std::int64_t first,
                   std::int64_t count,
                   std::span<float> out) const override {
    decode_grid_rows(
        quantized, first, count, out, fp8::value_function(best_isa()));
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
    return make_fp8_linear(
        spec, rows, columns, codes, bias, input_scale, backend);
  }

 private:
  static void check_weight(const NumberSpec& weight,
                           std::int64_t rows,
                           std::int64_t columns) {
    NIBBLE_CHECK(
        weight.floating && weight.bits == 8,
        kUnsupported,
        "scheme {}: found {} bits of type {}, expected 8 bits of type float",
        weight.scheme,
        weight.bits,
        weight.floating ? "float" : "int");
    if (!weight.symmetric) {
      fail_with_hint(ErrorCode::kUnsupported,
                     "leave \"symmetric\" out, or use int8",
                     "scheme {}: found asymmetric codes, expected symmetric",
                     weight.scheme);
    }
    check_grain(weight,
                {Grain::kTensor, Grain::kChannel, Grain::kBlock},
                "channel, tensor or a block of 128 x 128");
    check_scale_dtype(weight);
    check_divides(weight, rows, columns);
  }

  static void check_input(const NumberSpec& weight,
                          const NumberSpec& input,
                          std::int64_t rows,
                          std::int64_t columns) {
    const bool blocks = weight.grain == Grain::kBlock;
    const bool grain = input.grain == Grain::kTensor ||
                       (blocks ? input.grain == Grain::kGroup &&
                                     input.group == weight.block_columns
                               : input.grain == Grain::kToken);
    if (!input.floating || input.bits != 8 || !input.symmetric || !grain) {
      fail_with_hint(
          ErrorCode::kUnsupported,
          "use dynamic activations or none",
          "inputs of an fp8 layer: found {}, expected symmetric fp8 {}, or "
          "with one static scale",
          describe(LayerSpec{input, std::nullopt}),
          blocks ? fmt::format("per token and {} columns", weight.block_columns)
                 : std::string("per token"));
    }
    check_divides(input, rows, columns);
  }
};

}  // namespace

const Scheme& fp8_scheme() {
  static const Fp8Scheme scheme;
  return scheme;
}

}  // namespace nibble::quant
