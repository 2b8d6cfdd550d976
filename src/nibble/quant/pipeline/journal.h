#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nibble/base/file.h"
#include "nibble/quant/pipeline/execute.h"

namespace nibble::quant {

inline constexpr const char* kJournalName = "nibble.journal";

// The log of finished items in a partial result: a line for the plan's hash,
// then a line an item, each led by its own digest, so that a line that was cut
// by a crash is recognized. The file is locked while the object lives: a
// second process cannot work on the same partial result.
class Journal {
 public:
  // Starts an empty journal for a plan, or opens the one that is there.
  // kInvalidArgument when it belongs to another plan, or when another process
  // holds it.
  static Journal open(const std::filesystem::path& directory,
                      const std::string& plan_hash);

  // What the journal claims: entry i belongs to item i. It stands for nothing
  // until the outputs' bytes were compared with the checksums.
  [[nodiscard]] std::vector<std::optional<ItemResult>> take_results(
      std::size_t items);
  // Not thread-safe.
  void append(std::size_t item, const ItemResult& result);

  // The plan's hash in a directory's journal, or nothing when there is none.
  [[nodiscard]] static std::optional<std::string> plan_hash_in(
      const std::filesystem::path& directory);

 private:
  explicit Journal(File file) : file_(std::move(file)) {}

  void append_line(const std::string& text);

  File file_;
  std::uint64_t end_ = 0;
  std::vector<std::string> lines_;  // of finished items, as found
};

}  // namespace nibble::quant
