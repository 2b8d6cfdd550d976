#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nibble/base/progress.h"
#include "nibble/report/plots.h"

namespace nibble::report {

// Error of a quantized matrix, as the receipt states it.
struct LayerFigures {
  std::string name;
  std::string kind;  // "attention", "expert" ...
  int layer = -1;    // of the decoder, or -1
  std::string scheme;
  std::int64_t parameters = 0;
  double relative_mse = 0;
  double cosine = 1;
  double max_abs = 0;
};

struct KindSize {
  std::string kind;
  std::string scheme;  // "" = dense
  std::int64_t matrices = 0;
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;
};

// Scales of one kind and scheme.
struct ScaleFigures {
  std::string kind;
  std::string scheme;
  std::uint64_t count = 0;
  std::uint64_t unusable = 0;  // zero, negative or not finite
  double smallest = 0;
  double median = 0;  // to within a bin
  double largest = 0;
  Histogram histogram;
};

// What a receipt says of the whole.
struct ReceiptSummary {
  std::string program;  // "nibble 0.1.0"
  std::string source;
  std::uint64_t source_bytes = 0;
  std::string recipe_name;
  std::string recipe;  // JSON
  std::string numerics;
  double seconds = 0;
  std::uint64_t peak_rss_bytes = 0;
  // Source tensors by fate, and why the copied ones were.
  std::vector<std::pair<std::string, std::int64_t>> fates;
};

// Everything that the page of a checkpoint shows.
struct ModelReport {
  std::string name;
  std::string family;
  std::string format;
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;
  double bits_per_weight = 0;
  std::optional<ReceiptSummary> receipt;
  std::vector<LayerFigures> layers;  // empty without a receipt
  std::vector<KindSize> sizes;
  std::vector<ScaleFigures> scales;
};

// Reads headers, the receipt where there is one, and all scales; memory grows
// with the number of matrices only. Throws what opening the directory throws;
// kCorruptData for a receipt that is none.
[[nodiscard]] ModelReport collect_report(const std::filesystem::path& directory,
                                         ProgressSink& progress);

// The page.
[[nodiscard]] std::string render(const ModelReport& report);

}  // namespace nibble::report
