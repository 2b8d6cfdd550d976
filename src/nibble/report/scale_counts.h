#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "nibble/report/plots.h"

namespace nibble::report {

// Counts positive values in bins of an eighth of an octave. Counts of parts
// may be added up in any order.
class ScaleCounts {
 public:
  void add(std::span<const float> scales);
  void add(const ScaleCounts& other);

  [[nodiscard]] std::uint64_t count() const { return count_; }

  [[nodiscard]] std::uint64_t unusable() const { return unusable_; }

  [[nodiscard]] float smallest() const { return smallest_; }

  [[nodiscard]] float largest() const { return largest_; }

  // The middle of the bin that holds the median; 0 without values.
  [[nodiscard]] double median() const;
  // The bins that hold something, joined to at most most_bins.
  [[nodiscard]] Histogram histogram(std::size_t most_bins) const;

 private:
  static constexpr int kPerOctave = 8;
  static constexpr int kLeastOctave = -150;  // below every float
  static constexpr int kOctaves = 280;       // up to above every float

  std::array<std::uint64_t, static_cast<std::size_t>(kOctaves* kPerOctave)>
      bins_{};
  std::uint64_t count_ = 0;
  std::uint64_t unusable_ = 0;
  float smallest_ = 0;
  float largest_ = 0;
};

}  // namespace nibble::report
