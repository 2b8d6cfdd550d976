// What holds for every scheme of the registry, each spec that it accepts,
// every type of weight and hard values.

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nibble/quant/core/kernels/scale_rule.h"
#include "nibble/quant/core/registry.h"
#include "nibble/tensor/convert.h"
#include "weight_patterns.h"

namespace nibble::quant {
namespace {

// Rows are no multiple of any block, columns of all groups.
constexpr std::int64_t kRows = 131;
constexpr std::int64_t kColumns = 512;

bool accepts(const Scheme& scheme, const NumberSpec& spec) {
  try {
    scheme.check({spec, std::nullopt}, kRows, kColumns);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    return false;
  }
}

// Every spec of weights that some scheme accepts.
std::vector<NumberSpec> accepted_specs() {
  std::vector<NumberSpec> grains;
  for (const Grain grain : {Grain::kTensor, Grain::kChannel}) {
    grains.emplace_back().grain = grain;
  }
  for (const std::int64_t group : {16, 32, 64, 128, 256}) {
    grains.emplace_back().grain = Grain::kGroup;
    grains.back().group = group;
  }
  grains.emplace_back().grain = Grain::kBlock;
  grains.back().block_rows = 128;
  grains.back().block_columns = 128;
  std::vector<NumberSpec> accepted;
  for (const Scheme* scheme : schemes()) {
    for (const std::string_view name : scheme->recipe_names()) {
      for (NumberSpec spec : grains) {
        spec.scheme = name;
        for (int bits = 2; bits <= 8; ++bits) {
          for (const int flags : {0, 1, 2, 3}) {
            spec.bits = bits;
            spec.floating = (flags & 1) != 0;
            spec.symmetric = (flags & 2) != 0;
            if (accepts(*scheme, spec)) {
              accepted.push_back(spec);
            }
          }
        }
      }
    }
  }
  return accepted;
}

std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> values(
      static_cast<std::size_t>(tensor.shape().elements()));
  convert_to_float(tensor.view(), values);
  return values;
}

std::size_t scale_place(const Quantized& quantized, std::size_t element) {
  const ScaleGrid grid =
      scale_grid(quantized.spec, quantized.rows, quantized.columns);
  const auto columns = static_cast<std::size_t>(quantized.columns);
  return element / columns / static_cast<std::size_t>(grid.rows_per_scale) *
             static_cast<std::size_t>(grid.columns) +
         element % columns / static_cast<std::size_t>(grid.columns_per_scale);
}

class SchemeConformance : public ::testing::TestWithParam<NumberSpec> {
 protected:
  // Calls body(weight, options, numerics is exact, pattern name).
  template <typename Body>
  void for_each_case(const Body& body) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const WeightPattern& pattern : weight_patterns()) {
        const Tensor weight = make_weight(pattern, dtype, kRows, kColumns);
        for (const Numerics numerics :
             {Numerics::kExact, Numerics::kReference}) {
          NumberSpec spec = GetParam();
          spec.scale_dtype = dtype;
          EncodeOptions options;
          options.numerics = numerics;
          SCOPED_TRACE(fmt::format(
              "{} {} {}",
              dtype_name(dtype),
              pattern.name,
              numerics == Numerics::kExact ? "exact" : "reference"));
          body(spec, weight, options);
          if (HasFatalFailure()) {
            return;
          }
        }
      }
    }
  }

  const Scheme& scheme_ = scheme_for(GetParam());
};

TEST_P(SchemeConformance, EncodesToFiniteValuesWithinTheLimits) {
  for_each_case([&](const NumberSpec& spec,
                    const Tensor& weight,
                    const EncodeOptions& options) {
    const Quantized result = scheme_.encode(spec, weight.view(), options);
    const ScaleGrid grid = scale_grid(spec, kRows, kColumns);
    ASSERT_EQ(result.spec, spec);
    ASSERT_EQ(result.codes.shape(), weight.shape());
    ASSERT_EQ(result.scales.shape(), (Shape{grid.rows, grid.columns}));
    ASSERT_EQ(result.scales.dtype(), spec.scale_dtype);
    ASSERT_EQ(result.zeros.has_value(), !spec.symmetric);
    for (const float scale : floats(result.scales)) {
      ASSERT_TRUE(std::isfinite(scale) && scale > 0) << scale;
    }
    const float half = std::ldexp(1.0F, spec.bits - 1);
    const float low = spec.floating ? -kF8E4M3Max : -half;
    const float high = spec.floating ? kF8E4M3Max : half - 1;
    for (const float code : floats(result.codes)) {
      ASSERT_TRUE(code >= low && code <= high) << code;
    }
    if (result.zeros) {
      for (const float zero : floats(*result.zeros)) {
        ASSERT_TRUE(zero >= low && zero <= high) << zero;
      }
    }
    Tensor decoded(weight.dtype(), weight.shape());
    scheme_.decode(result, decoded.view());
    for (const float value : floats(decoded)) {
      ASSERT_TRUE(std::isfinite(value)) << value;
    }
  });
}

TEST_P(SchemeConformance, ExactCodesAreTheNearestToTheirWeights) {
  for_each_case([&](const NumberSpec& spec,
                    const Tensor& weight,
                    const EncodeOptions& options) {
    if (options.numerics != Numerics::kExact) {
      return;
    }
    const Quantized result = scheme_.encode(spec, weight.view(), options);
    const std::vector<float> weights = floats(weight);
    const std::vector<float> scales = floats(result.scales);
    const std::vector<float> zeros =
        result.zeros ? floats(*result.zeros)
                     : std::vector<float>(scales.size(), 0.0F);
    // Values of all codes, to look for a nearer one.
    std::vector<double> values;
    for (int code = -128; code < 128; ++code) {
      const double value = spec.floating ? static_cast<double>(f8e4m3_to_float(
                                               static_cast<std::uint8_t>(code)))
                                         : code;
      const int half = 1 << (spec.bits - 1);
      if (!std::isnan(value) &&
          (spec.floating || (code >= -half && code < half))) {
        values.push_back(value);
      }
    }
    const std::vector<float> codes = floats(result.codes);
    // Every 37th: all places of groups and blocks come up.
    for (std::size_t i = 0; i < weights.size(); i += 37) {
      const std::size_t at = scale_place(result, i);
      const double target =
          static_cast<double>(weights[i]) / static_cast<double>(scales[at]) +
          static_cast<double>(zeros[at]);
      const double distance = std::fabs(static_cast<double>(codes[i]) - target);
      for (const double value : values) {
        ASSERT_LE(distance, std::fabs(value - target) + 1e-4)
            << weights[i] << " with scale " << scales[at] << " has code "
            << codes[i] << ", nearer " << value;
      }
    }
  });
}

TEST_P(SchemeConformance, TilesGiveTheCodesOfTheWhole) {
  for_each_case(
      [&](const NumberSpec& spec, const Tensor& weight, EncodeOptions options) {
        const std::vector<float> weights = floats(weight);
        options.tensor_min = *std::ranges::min_element(weights);
        options.tensor_max = *std::ranges::max_element(weights);
        const Quantized whole = scheme_.encode(spec, weight.view(), options);
        const Quantized tile =
            scheme_.encode(spec, weight.view().rows(128, 3), options);
        ASSERT_EQ(std::memcmp(tile.codes.view().data(),
                              whole.codes.view().rows(128, 3).data(),
                              tile.codes.bytes()),
                  0);
        if (spec.grain == Grain::kTensor) {
          // The range that is found equals the one that is given.
          EncodeOptions found;
          found.numerics = options.numerics;
          const Quantized again = scheme_.encode(spec, weight.view(), found);
          ASSERT_EQ(floats(again.scales), floats(whole.scales));
          ASSERT_EQ(floats(again.codes), floats(whole.codes));
        }
      });
}

std::string name_of(const ::testing::TestParamInfo<NumberSpec>& test) {
  std::string name = describe(LayerSpec{test.param, std::nullopt});
  for (char& c : name) {
    c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All,
                         SchemeConformance,
                         ::testing::ValuesIn(accepted_specs()),
                         name_of);

TEST(SchemeConformanceList, HoldsTheSpecsThatRecipesOffer) {
  // 2 widths x 2 symmetries x (tensor, channel, 5 groups), 3 grains of FP8.
  EXPECT_EQ(accepted_specs().size(), 2U * 2U * 7U + 3U);
}

}  // namespace
}  // namespace nibble::quant
