#include "nibble/quant/schemes/integer/affine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/quant/schemes/integer/linear.h"
#include "nibble/tensor/convert.h"

namespace nibble::quant::affine {
namespace {

constexpr float kSteps = 15;          // codes from end to end
constexpr float kMiddle = 8;          // steps from the least code to code 0
constexpr float kLeastRange = 1e-6F;  // gpt-fast's floor

struct Group {
  float scale = 0;
  float offset = 0;
};

// Scale and offset that span [low, high], as BF16 values.
Group choose(float low, float high, bool reference) {
  float range = reference ? round_to_bf16(high - low) : high - low;
  if (!std::isfinite(range)) {
    range = 0x1.FEp127F;  // the ends of the type are farther apart than it
  }
  range = std::max(range, kLeastRange);
  Group group;
  group.scale = round_to_bf16(range / kSteps);
  group.offset =
      round_to_bf16(low + (reference ? round_to_bf16(kMiddle * group.scale)
                                     : kMiddle * group.scale));
  return group;
}

std::int8_t code_of(float weight, const Group& group, bool reference) {
  float least = group.offset - kMiddle * group.scale;
  float quotient = 0;
  if (reference) {
    least = round_to_bf16(least);
    quotient = round_to_bf16(round_to_bf16(weight - least) / group.scale);
  } else {
    quotient = (weight - least) / group.scale;
  }
  const float code = std::clamp(std::nearbyint(quotient), 0.0F, kSteps);
  return static_cast<std::int8_t>(code - kMiddle);
}

// The symmetric spec of the codes alone.
NumberSpec plain_codes(NumberSpec spec) {
  spec.symmetric = true;
  spec.real_zero = false;
  return spec;
}

class AffineLinear final : public model::Linear {
 public:
  AffineLinear(const LayerSpec& spec,
               std::int64_t rows,
               std::int64_t columns,
               const RowSource& codes,
               const std::optional<Tensor>& bias,
               backend::Backend& backend)
      : group_(spec.weight.group),
        groups_(scale_grid(spec.weight, rows, columns).columns),
        backend_(backend),
        offsets_(DType::kBF16, {rows, groups_}) {
    LayerSpec plain = spec;
    plain.weight = plain_codes(spec.weight);
    codes_ = make_integer_linear(
        plain,
        rows,
        columns,
        [&](std::int64_t first, std::int64_t count) {
          Quantized tile = codes(first, count);
          take_offsets(tile, first);
          tile.spec = plain.weight;
          tile.zeros.reset();
          return tile;
        },
        bias,
        std::nullopt,
        backend);
  }

  void forward(ConstTensorView x,
               TensorView y,
               backend::Stream& stream) const override {
    codes_->forward(x, y, stream);
    const std::int64_t tokens = x.dim(0);
    Tensor sums = backend_.allocate(DType::kF32, {tokens, groups_});
    sum_groups(x, sums.view());
    Tensor shift =
        backend_.allocate(DType::kF32, {tokens, offsets_.shape()[0]});
    backend_.matmul(std::as_const(sums).view(),
                    std::as_const(offsets_).view(),
                    {},
                    shift.view(),
                    stream);
    backend_.add(y, std::as_const(shift).view(), stream);
  }

  [[nodiscard]] std::size_t resident_bytes() const override {
    return codes_->resident_bytes() + std::as_const(offsets_).bytes();
  }

  [[nodiscard]] std::string description() const override {
    return codes_->description() + " with offsets";
  }

 private:
  void take_offsets(const Quantized& tile, std::int64_t first) {
    NIBBLE_CHECK(tile.zeros && tile.zeros->dtype() == DType::kBF16 &&
                     tile.zeros->shape() == Shape({tile.rows, groups_}),
                 kCorruptData,
                 "offsets: found none of the shape of the scales");
    const ConstTensorView from = std::as_const(*tile.zeros).view();
    for (const std::uint16_t bits : from.raw<std::uint16_t>()) {
      NIBBLE_CHECK(std::isfinite(bf16_to_float(bits)),
                   kCorruptData,
                   "offsets: found {}, expected a finite number",
                   bf16_to_float(bits));
    }
    std::memcpy(offsets_.view().rows(first, tile.rows).data(),
                from.data(),
                from.bytes());
  }

  void sum_groups(ConstTensorView x, TensorView sums) const {
    const std::int64_t columns = x.dim(1);
    const float* from = x.as<float>().data();
    float* to = sums.as<float>().data();
    parallel_for(x.dim(0), 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        for (std::int64_t g = 0; g < groups_; ++g) {
          float sum = 0;
          const std::int64_t stop = std::min(columns, (g + 1) * group_);
          for (std::int64_t c = g * group_; c < stop; ++c) {
            sum += from[t * columns + c];
          }
          to[t * groups_ + g] = sum;
        }
      }
    });
  }

  std::int64_t group_;
  std::int64_t groups_;
  backend::Backend& backend_;
  Tensor offsets_;  // (rows, groups) BF16
  std::unique_ptr<model::Linear> codes_;
};

}  // namespace

void check(const LayerSpec& spec, std::int64_t rows, std::int64_t columns) {
  const NumberSpec& weight = spec.weight;
  NIBBLE_CHECK(weight.scheme == "int4" && weight.bits == 4 &&
                   !weight.symmetric && weight.grain == Grain::kGroup &&
                   weight.group >= 32 && weight.group % 32 == 0 &&
                   weight.scale_dtype == DType::kBF16 && !spec.input &&
                   rows > 0 && columns > 0,
               kUnsupported,
               "weights with a real zero: found {}, expected int4 in groups "
               "of a multiple of 32 columns with BF16 scales",
               describe(spec));
}

Quantized encode(const NumberSpec& spec,
                 ConstTensorView weight,
                 const EncodeOptions& options) {
  const bool reference = options.numerics == Numerics::kReference;
  const std::int64_t rows = weight.dim(0);
  const std::int64_t columns = weight.dim(1);
  const ScaleGrid grid = scale_grid(spec, rows, columns);
  Quantized result;
  result.spec = spec;
  result.rows = rows;
  result.columns = columns;
  result.codes = Tensor(DType::kI8, {rows, columns});
  result.scales = Tensor(DType::kBF16, {rows, grid.columns});
  result.zeros = Tensor(DType::kBF16, {rows, grid.columns});
  const auto codes = result.codes.view().as<std::int8_t>();
  const auto scales = result.scales.view().raw<std::uint16_t>();
  const auto offsets = result.zeros->view().raw<std::uint16_t>();
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (std::int64_t r = 0; r < rows; ++r) {
    convert_to_float(weight.rows(r, 1), row);
    for (std::int64_t g = 0; g < grid.columns; ++g) {
      const auto first = static_cast<std::size_t>(g * spec.group);
      const auto count =
          std::min(static_cast<std::size_t>(spec.group), row.size() - first);
      auto [low, high] = std::minmax_element(
          row.begin() + static_cast<std::ptrdiff_t>(first),
          row.begin() + static_cast<std::ptrdiff_t>(first + count));
      const bool padded = count < static_cast<std::size_t>(spec.group);
      // gpt-fast casts a model to BF16 before anything else.
      const auto bound = [&](float x) {
        return reference ? round_to_bf16(x) : x;
      };
      const Group group = choose(bound(padded ? std::min(*low, 0.0F) : *low),
                                 bound(padded ? std::max(*high, 0.0F) : *high),
                                 reference);
      const auto at = static_cast<std::size_t>(r * grid.columns + g);
      scales[at] = float_to_bf16(group.scale);
      offsets[at] = float_to_bf16(group.offset);
      for (std::size_t c = first; c < first + count; ++c) {
        codes[static_cast<std::size_t>(r * columns) + c] =
            code_of(bound(row[c]), group, reference);
      }
    }
  }
  return result;
}

void decode_rows(const Quantized& quantized,
                 std::int64_t first,
                 std::int64_t count,
                 std::span<float> out) {
  const ScaleGrid grid =
      scale_grid(quantized.spec, quantized.rows, quantized.columns);
  const auto codes = quantized.codes.view().as<std::int8_t>();
  const auto scales = quantized.scales.view().raw<std::uint16_t>();
  const auto offsets =
      std::as_const(*quantized.zeros).view().raw<std::uint16_t>();
  const std::int64_t columns = quantized.columns;
  NIBBLE_ASSERT(first + count <= quantized.rows &&
                out.size() == static_cast<std::size_t>(count * columns));
  for (std::int64_t i = 0; i < count * columns; ++i) {
    const std::int64_t row = first + i / columns;
    const auto at = static_cast<std::size_t>(
        row * grid.columns + i % columns / quantized.spec.group);
    out[static_cast<std::size_t>(i)] =
        std::fma(static_cast<float>(
                     codes[static_cast<std::size_t>(first * columns + i)]),
                 bf16_to_float(scales[at]),
                 bf16_to_float(offsets[at]));
  }
}

std::unique_ptr<model::Linear> make_linear(const LayerSpec& spec,
                                           std::int64_t rows,
                                           std::int64_t columns,
                                           const RowSource& codes,
                                           const std::optional<Tensor>& bias,
                                           backend::Backend& backend) {
  return std::make_unique<AffineLinear>(
      spec, rows, columns, codes, bias, backend);
}

}  // namespace nibble::quant::affine
