#include "nibble/quant/schemes/fp8/linear_input.h"

#include <algorithm>
#include <vector>

#include "nibble/base/checked_math.h"
#include "nibble/base/parallel.h"
#include "nibble/quant/schemes/common/fp8_grid.h"

namespace nibble::quant {
namespace {

// to (columns, tokens) from rows (tokens, columns): a cache line of each row
// at a time.
void interleave(const float* rows,
                std::int64_t tokens,
                std::int64_t columns,
                float factor,
                float* to) {
  constexpr std::int64_t kLine = 16;
  for (std::int64_t first = 0; first < columns; first += kLine) {
    const std::int64_t last = std::min(first + kLine, columns);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float* row = rows + t * columns;
      for (std::int64_t column = first; column < last; ++column) {
        to[column * tokens + t] = row[column] * factor;
      }
    }
  }
}

}  // namespace

RoundedInputs::RoundedInputs(const InputRounding& rounding,
                             std::span<const float> x,
                             std::int64_t tokens,
                             std::int64_t group,
                             float factor)
    : tokens_(tokens),
      group_(group),
      padded_(rounding.padded),
      values_(std::make_unique_for_overwrite<float[]>(
          static_cast<std::size_t>(tokens * padded_))) {
  parallel_for(groups(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      round_group(rounding, x, i, factor);
    }
  });
}

void RoundedInputs::round_group(const InputRounding& rounding,
                                std::span<const float> x,
                                std::int64_t group,
                                float factor) {
  const std::int64_t first = group * group_;
  const std::int64_t count = std::min(group_, tokens_ - first);
  const auto columns = static_cast<std::size_t>(rounding.columns);
  const auto tokens = x.subspan(static_cast<std::size_t>(first) * columns,
                                static_cast<std::size_t>(count) * columns);
  const float* rows = tokens.data();
  std::vector<float> rounded;
  if (rounding.spec) {
    rounded.resize(tokens.size());
    for (std::size_t at = 0; at < tokens.size(); at += columns) {
      round_token_to_fp8(*rounding.loops,
                         tokens.subspan(at, columns),
                         *rounding.spec,
                         rounding.static_scale,
                         std::span(rounded).subspan(at, columns));
    }
    rows = rounded.data();
  }
  float* to = values_.get() + first * padded_;
  interleave(rows, count, rounding.columns, factor, to);
  std::fill(to + rounding.columns * count, to + padded_ * count, 0.0F);
}

std::int64_t RoundedInputs::groups() const {
  return divide_up(tokens_, group_);
}

Fp8Inputs RoundedInputs::operator[](std::int64_t group) const {
  const std::int64_t first = group * group_;
  return {values_.get() + first * padded_,
          static_cast<int>(std::min(group_, tokens_ - first))};
}

}  // namespace nibble::quant
