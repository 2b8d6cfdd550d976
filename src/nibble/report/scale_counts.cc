#include "nibble/report/scale_counts.h"

#include <algorithm>
#include <cmath>

#include "nibble/base/checked_math.h"

namespace nibble::report {

void ScaleCounts::add(std::span<const float> scales) {
  for (const float scale : scales) {
    if (!std::isfinite(scale) || scale <= 0) {
      ++unusable_;
      continue;
    }
    const double place =
        (std::log2(static_cast<double>(scale)) - kLeastOctave) * kPerOctave;
    ++bins_[static_cast<std::size_t>(std::floor(place))];
    smallest_ = count_ == 0 ? scale : std::min(smallest_, scale);
    largest_ = count_ == 0 ? scale : std::max(largest_, scale);
    ++count_;
  }
}

void ScaleCounts::add(const ScaleCounts& other) {
  for (std::size_t i = 0; i < bins_.size(); ++i) {
    bins_[i] += other.bins_[i];
  }
  unusable_ += other.unusable_;
  if (other.count_ > 0) {
    smallest_ =
        count_ == 0 ? other.smallest_ : std::min(smallest_, other.smallest_);
    largest_ =
        count_ == 0 ? other.largest_ : std::max(largest_, other.largest_);
  }
  count_ += other.count_;
}

double ScaleCounts::median() const {
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < bins_.size(); ++i) {
    seen += bins_[i];
    if (count_ > 0 && 2 * seen >= count_) {
      return std::exp2(kLeastOctave +
                       (static_cast<double>(i) + 0.5) / kPerOctave);
    }
  }
  return 0;
}

Histogram ScaleCounts::histogram(std::size_t most_bins) const {
  const auto holds = [](std::uint64_t count) { return count > 0; };
  const auto begin = std::find_if(bins_.begin(), bins_.end(), holds);
  const auto end = std::find_if(bins_.rbegin(), bins_.rend(), holds).base();
  Histogram result;
  if (begin == bins_.end()) {
    return result;
  }
  const auto first = static_cast<std::size_t>(begin - bins_.begin());
  const auto used = static_cast<std::size_t>(end - begin);
  const std::size_t joined = divide_up(used, most_bins);
  for (std::size_t i = 0; i < used; i += joined) {
    std::uint64_t sum = 0;
    for (std::size_t j = i; j < std::min(i + joined, used); ++j) {
      sum += bins_[first + j];
    }
    result.counts.push_back(sum);
  }
  const auto edge = [](std::size_t bin) {
    return std::exp2(kLeastOctave + static_cast<double>(bin) / kPerOctave);
  };
  result.low = edge(first);
  result.high = edge(first + result.counts.size() * joined);
  return result;
}

}  // namespace nibble::report
