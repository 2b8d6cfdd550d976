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

// Locks a file for this process until it is closed; false when another process
// holds the lock.
[[nodiscard]] bool lock_now(const File& file);

// Whose work a partial result is. Runs with equal keys may go on with each
// other's work.
struct JobKey {
  std::string version;      // of nibble
  std::string source;       // digest of its files' sizes and times
  std::string recipe;       // digest of the resolved recipe
  std::string plan;         // plan_hash(): everything that decides bytes
  std::string source_path;  // for people; not compared
};

// The log of finished items in a partial result: a line for the job's key,
// then a line an item, each led by its own digest, so that a line that was cut
// by a crash is recognized. The file is locked while the object lives: a
// second process cannot work on the same partial result.
class Journal {
 public:
  // Starts an empty journal for a job, or opens the one that is there.
  // kInvalidArgument when it belongs to another job (and says what differs), or
  // when another process holds it.
  static Journal open(const std::filesystem::path& directory,
                      const JobKey& key);

  // What the journal claims: entry i belongs to item i. It stands for nothing
  // until the outputs' bytes were compared with the checksums.
  [[nodiscard]] std::vector<std::optional<ItemResult>> take_results(
      std::size_t items);
  // Not thread-safe.
  void append(std::size_t item, const ItemResult& result);

  // The key in a directory's journal, or nothing when there is none or it is
  // none of ours.
  [[nodiscard]] static std::optional<JobKey> key_in(
      const std::filesystem::path& directory);

 private:
  explicit Journal(File file) : file_(std::move(file)) {}

  void append_line(const std::string& text);

  File file_;
  std::uint64_t end_ = 0;
  std::vector<std::string> lines_;  // of finished items, as found
};

}  // namespace nibble::quant
