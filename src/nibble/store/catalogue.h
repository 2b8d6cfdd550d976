#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nibble/store/store.h"

namespace nibble::store {

// A quantized version, as its directory's receipt tells.
struct Version {
  std::string name;
  std::filesystem::path path;
  std::filesystem::path source;  // absolute, as it was when it was made
  std::string recipe;            // its name, or ""
  std::string recipe_json;       // as resolved
  std::string scheme;            // "int4 group 128", several joined by "; "
  std::string key;               // content key, "" when older than keys
  double bits_per_weight = 0;
  std::uint64_t bytes = 0;  // of all its files
  std::string created;      // "2026-11-30T13:46:55Z"
  // As last measured with this content.
  std::optional<double> perplexity;
  std::optional<double> kl;
};

// A downloaded model.
struct SourceModel {
  std::string name;  // "owner/name"
  std::filesystem::path path;
  std::string scheme;  // "dense BF16", or "" when it cannot be read
  std::optional<double> bits_per_weight;
  std::uint64_t bytes = 0;
  std::string created;
};

// In the order of names. Directories that are no versions (without a receipt,
// hidden, unfinished) are passed over; nothing is written.
[[nodiscard]] std::vector<Version> versions(const Store& store);
[[nodiscard]] std::vector<SourceModel> models(const Store& store);

// The version of that name, or nothing. kCorruptData for a receipt that is
// none.
[[nodiscard]] std::optional<Version> find_version(const Store& store,
                                                  const std::string& name);

// Names of the versions and models, cheaper than the above.
[[nodiscard]] std::vector<std::string> names(const Store& store);

// "2026-11-30T13:46:55Z": when a file was last written.
[[nodiscard]] std::string written_at(const std::filesystem::path& file);

}  // namespace nibble::store
