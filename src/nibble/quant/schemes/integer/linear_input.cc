#include "nibble/quant/schemes/integer/linear_input.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/base/parallel.h"
#include "nibble/quant/schemes/common/fp8_grid.h"

namespace nibble::quant {
namespace {

// Codes of one block with the full range of 16 bits; returns the scale.
float encode_fine(const InputLoops& loops,
                  std::span<const float> values,
                  std::int16_t* codes) {
  const auto count = static_cast<std::int64_t>(values.size());
  const float most = loops.absolute_maximum(values.data(), count);
  // A block of nothing but tinier numbers counts as zero: its scale would
  // have no reciprocal.
  if (most < 0x1p-100F) {
    std::fill_n(codes, count, std::int16_t{0});
    return 0;
  }
  loops.codes16(values.data(), count, 32767.0F / most, codes);
  return most / 32767.0F;
}

// Scale of int8 inputs. When dynamic, the range is divided by the 255 steps,
// as that of weights is (docs/formats/compressed-tensors.md, "Numerics"). A
// NaN among the inputs has no code and becomes the scale, to stay visible.
float int8_scale(const InputLoops& loops,
                 std::span<const float> token,
                 std::optional<float> static_scale) {
  const float most = loops.absolute_maximum(
      token.data(), static_cast<std::int64_t>(token.size()));
  if (std::isnan(most)) {
    return most;
  }
  const float scale = static_scale ? *static_scale : most / 127.5F;
  return scale == 0 ? std::numeric_limits<float>::epsilon() : scale;
}

// Columns 2p and 2p + 1 of a token.
std::int32_t pair_word(const std::int16_t* row, std::int64_t p) {
  const auto low = static_cast<std::uint16_t>(row[2 * p]);
  const auto high = static_cast<std::uint16_t>(row[2 * p + 1]);
  return static_cast<std::int32_t>(low |
                                   (static_cast<std::uint32_t>(high) << 16));
}

// Quad q of a token: four of the 8 columns of a run of 4-bit weights, or of
// the 4 columns of one of 8-bit weights (linear_kernels.h).
std::int32_t quad_word(const std::int16_t* row,
                       std::int64_t q,
                       int weight_bits) {
  const std::int16_t* first =
      row + (weight_bits == 4 ? q / 2 * 8 + q % 2 * 2 : q * 4);
  const int step = weight_bits == 4 ? 4 : 2;
  const auto byte = [&](int column, int at) {
    return static_cast<std::uint32_t>(static_cast<std::uint8_t>(first[column]))
           << (8 * at);
  };
  return static_cast<std::int32_t>(byte(0, 0) | byte(step, 1) | byte(1, 2) |
                                   byte(1 + step, 3));
}

// to (words, tokens) from the codes of tokens, a cache line of each at a time.
template <typename Word>
void interleave(std::int64_t tokens,
                std::int64_t words_per_token,
                std::int32_t* to,
                const Word& word) {
  constexpr std::int64_t kLine = 16;
  for (std::int64_t first = 0; first < words_per_token; first += kLine) {
    const std::int64_t last = std::min(first + kLine, words_per_token);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t i = first; i < last; ++i) {
        to[i * tokens + t] = word(t, i);
      }
    }
  }
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
  const InputLoops& loops = *coding.loops;
  std::vector<float> on_grid;
  if (coding.spec && coding.spec->floating) {
    on_grid.resize(token.size());
    round_token_to_fp8(
        loops, token, *coding.spec, coding.static_scale, on_grid);
    token = on_grid;
  }
  const bool as_int8 = coding.spec && !coding.spec->floating;
  if (as_int8) {
    const float scale = int8_scale(loops, token, coding.static_scale);
    loops.codes8(token.data(), coding.columns, scale, codes.data());
    std::ranges::fill(scales, scale);
  }
  for (std::int64_t b = 0; b < coding.blocks; ++b) {
    const std::int64_t first = b * coding.block;
    const std::int64_t count = std::min(coding.block, coding.columns - first);
    std::int16_t* block_codes = codes.data() + first;
    if (!as_int8) {
      scales[b] = encode_fine(loops,
                              token.subspan(static_cast<std::size_t>(first),
                                            static_cast<std::size_t>(count)),
                              block_codes);
    }
    sums[b] = loops.sum(block_codes, count);
  }
}

CodedInputs::CodedInputs(const InputCoding& coding,
                         std::span<const float> x,
                         std::int64_t tokens,
                         std::int64_t group)
    : tokens_(tokens),
      group_(group),
      words_per_token_(coding.padded * coding.bits / 32),
      blocks_(coding.blocks),
      words_(std::make_unique_for_overwrite<std::int32_t[]>(
          static_cast<std::size_t>(tokens * words_per_token_))),
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
  std::vector<std::int16_t> codes(
      static_cast<std::size_t>(count * coding.padded));
  const auto columns = static_cast<std::size_t>(coding.columns);
  const auto padded = static_cast<std::size_t>(coding.padded);
  const auto blocks = static_cast<std::size_t>(blocks_);
  for (std::int64_t t = 0; t < count; ++t) {
    const auto token = static_cast<std::size_t>(first + t);
    encode_token(
        coding,
        x.subspan(token * columns, columns),
        std::span(codes).subspan(static_cast<std::size_t>(t) * padded, padded),
        std::span(scales_).subspan(token * blocks, blocks),
        std::span(sums_).subspan(token * blocks, blocks));
  }
  std::int32_t* words = words_.get() + first * words_per_token_;
  const auto row = [&](std::int64_t t) {
    return codes.data() + t * coding.padded;
  };
  if (coding.bits == 16) {
    interleave(
        count, words_per_token_, words, [&](std::int64_t t, std::int64_t i) {
          return pair_word(row(t), i);
        });
  } else {
    interleave(
        count, words_per_token_, words, [&](std::int64_t t, std::int64_t i) {
          return quad_word(row(t), i, coding.weight_bits);
        });
  }
}

std::int64_t CodedInputs::groups() const {
  return divide_up(tokens_, group_);
}

IntegerInputs CodedInputs::operator[](std::int64_t group) const {
  const std::int64_t first = group * group_;
  return {words_.get() + first * words_per_token_,
          scales_.data() + first * blocks_,
          sums_.data() + first * blocks_,
          static_cast<int>(std::min(group_, tokens_ - first))};
}

}  // namespace nibble::quant
