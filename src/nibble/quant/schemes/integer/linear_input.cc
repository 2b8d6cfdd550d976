#include "nibble/quant/schemes/integer/linear_input.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/quant/schemes/common/fp8_grid.h"

namespace nibble::quant {
namespace {

// Adding 1.5 * 2^23 to a float of less than 2^22 leaves its nearest integer,
// ties to even, in the low bits. Unlike lrintf, compilers make vectors of it.
constexpr float kMagic = 12582912.0F;

std::int32_t nearest_integer(float value) {
  return std::bit_cast<std::int32_t>(value + kMagic) -
         std::bit_cast<std::int32_t>(kMagic);
}

// Codes of one block with the full range of 16 bits; returns the scale.
float encode_fine(std::span<const float> values,
                  std::span<std::int16_t> codes) {
  const float most = absolute_maximum(values);
  // A block of nothing but tinier numbers counts as zero: its scale would
  // have no reciprocal.
  if (most < 0x1p-100F) {
    std::ranges::fill(codes, std::int16_t{0});
    return 0;
  }
  const float factor = 32767.0F / most;
  for (std::size_t i = 0; i < values.size(); ++i) {
    codes[i] = static_cast<std::int16_t>(nearest_integer(values[i] * factor));
  }
  return most / 32767.0F;
}

void encode_int8(std::span<const float> values,
                 float scale,
                 std::span<std::int16_t> codes) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float clamped =
        std::min(std::max(values[i] / scale, -128.0F), 127.0F);
    codes[i] = static_cast<std::int16_t>(nearest_integer(clamped));
  }
}

// Scale of dynamic int8 inputs: the range is divided by the 255 steps, as
// weights are (docs/formats/compressed-tensors.md, "Numerics").
float dynamic_int8_scale(std::span<const float> token) {
  const float scale = absolute_maximum(token) / 127.5F;
  return scale == 0 ? std::numeric_limits<float>::epsilon() : scale;
}

std::int32_t sum_of(std::span<const std::int16_t> codes) {
  std::int32_t sum = 0;
  for (const std::int16_t code : codes) {
    sum += code;
  }
  return sum;
}

}  // namespace

void check_integer_input(const NumberSpec& input) {
  const bool floating =
      input.floating && input.bits == 8 &&
      (input.grain == Grain::kToken || input.grain == Grain::kGroup ||
       input.grain == Grain::kTensor);
  const bool integer =
      !input.floating && input.bits == 8 &&
      (input.grain == Grain::kToken || input.grain == Grain::kTensor);
  if (!input.symmetric || !(floating || integer) ||
      (input.grain == Grain::kGroup && input.group <= 0)) {
    fail(ErrorCode::kUnsupported,
         "inputs of integer weights: found {}{} bits a {}{}, expected "
         "symmetric 8-bit integers a token or tensor, or FP8",
         input.floating ? "floating, " : "",
         input.bits,
         grain_name(input.grain),
         input.symmetric ? "" : ", asymmetric");
  }
}

void encode_token(const InputCoding& coding,
                  std::span<const float> token,
                  std::span<std::int16_t> codes,
                  std::span<float> scales,
                  std::span<std::int32_t> sums) {
  std::fill(codes.begin() + coding.columns, codes.end(), std::int16_t{0});
  std::vector<float> on_grid;
  if (coding.spec && coding.spec->floating) {
    on_grid.resize(token.size());
    round_token_to_fp8(token, *coding.spec, coding.static_scale, on_grid);
    token = on_grid;
  }
  const bool as_int8 = coding.spec && !coding.spec->floating;
  if (as_int8) {
    const float scale =
        coding.static_scale ? *coding.static_scale : dynamic_int8_scale(token);
    encode_int8(token, scale, codes.first(token.size()));
    std::ranges::fill(scales, scale);
  }
  for (std::int64_t b = 0; b < coding.blocks; ++b) {
    const auto first = static_cast<std::size_t>(b * coding.block);
    const std::size_t count =
        std::min(static_cast<std::size_t>(coding.block), token.size() - first);
    const auto block_codes = codes.subspan(first, count);
    if (!as_int8) {
      scales[b] = encode_fine(token.subspan(first, count), block_codes);
    }
    sums[b] = sum_of(block_codes);
  }
}

CodedInputs::CodedInputs(const InputCoding& coding,
                         std::span<const float> x,
                         std::int64_t tokens,
                         std::int64_t group)
    : tokens_(tokens),
      group_(group),
      pairs_per_token_(coding.padded / 2),
      blocks_(coding.blocks),
      pairs_(std::make_unique_for_overwrite<std::int32_t[]>(
          static_cast<std::size_t>(tokens * pairs_per_token_))),
      scales_(static_cast<std::size_t>(tokens * blocks_)),
      sums_(scales_.size()) {
  parallel_for(groups(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      encode_group(coding, x, i);
    }
  });
}

void CodedInputs::encode_group(const InputCoding& coding,
                               std::span<const float> x,
                               std::int64_t group) {
  const std::int64_t first = group * group_;
  const std::int64_t count = std::min(group_, tokens_ - first);
  std::int32_t* pairs = pairs_.get() + first * pairs_per_token_;
  std::vector<std::int16_t> codes(static_cast<std::size_t>(coding.padded));
  for (std::int64_t t = 0; t < count; ++t) {
    const auto columns = static_cast<std::size_t>(coding.columns);
    const auto block_at = static_cast<std::size_t>((first + t) * blocks_);
    const auto blocks = static_cast<std::size_t>(blocks_);
    encode_token(
        coding,
        x.subspan(static_cast<std::size_t>(first + t) * columns, columns),
        codes,
        std::span(scales_).subspan(block_at, blocks),
        std::span(sums_).subspan(block_at, blocks));
    for (std::int64_t p = 0; p < pairs_per_token_; ++p) {
      const auto low = static_cast<std::uint16_t>(codes[2 * p]);
      const auto high = static_cast<std::uint16_t>(codes[2 * p + 1]);
      pairs[p * count + t] = static_cast<std::int32_t>(
          low | (static_cast<std::uint32_t>(high) << 16));
    }
  }
}

std::int64_t CodedInputs::groups() const {
  return divide_up(tokens_, group_);
}

IntegerInputs CodedInputs::operator[](std::int64_t group) const {
  const std::int64_t first = group * group_;
  return {pairs_.get() + first * pairs_per_token_,
          scales_.data() + first * blocks_,
          sums_.data() + first * blocks_,
          static_cast<int>(std::min(group_, tokens_ - first))};
}

}  // namespace nibble::quant
