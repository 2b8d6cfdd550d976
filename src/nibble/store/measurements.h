#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "nibble/store/store.h"

namespace nibble::store {

// What eval or compare found of a version, and on what.
struct Measurement {
  double perplexity = 0;
  std::optional<double> kl = {};  // mean, from a reference
  std::string text = {};          // file that it was measured on
  std::string reference = {};     // of kl
  std::int64_t window = 0;        // tokens
  std::int64_t windows = 0;
};

// Keeps a measurement beside the version at directory. Does nothing when
// directory is no version of the store; a store that cannot be written is no
// error, only a note in the log.
void record_measurement(const Store& store,
                        const std::filesystem::path& directory,
                        const Measurement& measurement);

// What was recorded for a version whose content has this key.
struct Recorded {
  std::optional<double> perplexity;
  std::optional<double> kl;
};

[[nodiscard]] Recorded recorded_measurement(const Store& store,
                                            const std::string& name,
                                            const std::string& key);

}  // namespace nibble::store
