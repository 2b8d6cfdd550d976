#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nibble/base/files/file.h"
#include "nibble/quant/pipeline/execute/execute.h"

namespace nibble::quant {

inline constexpr const char* kJournalName = "nibble.journal";

// Whose work a partial result is. Runs with equal keys may go on with each
// other's work.
struct JobKey {
  std::string version;      // of nibble
  std::string source;       // digest of its files' sizes and times
  std::string recipe;       // digest of the resolved recipe
  std::string plan;         // plan_hash(): everything that decides bytes
  std::string source_path;  // for people; not compared
};

// An item and what is known of it, as a line of text and back.
[[nodiscard]] std::string to_line(std::size_t item, const ItemResult& result);
[[nodiscard]] std::pair<std::size_t, ItemResult> from_line(
    const std::string& line);

// The log of finished items in a partial result: a line for the job's key,
// then a line an item, each led by its own digest, so that a line that was cut
// by a crash is recognized. The file is locked while the object lives: a
// second process cannot work on the same partial result. Each process of a job
// of several has a journal of its own, and all are read when a job goes on.
class Journal {
 public:
  // Starts an empty journal for a job, or opens the one that is there. number:
  // that of the process. kInvalidArgument when it belongs to another job (and
  // says what differs), or when another process holds it.
  static Journal open(const std::filesystem::path& directory,
                      const JobKey& key,
                      int number = 0);

  // Not thread-safe.
  void append(std::size_t item, const ItemResult& result);

  // The key in a directory's first journal, or nothing when there is none or
  // it is none of ours.
  [[nodiscard]] static std::optional<JobKey> key_in(
      const std::filesystem::path& directory);

 private:
  explicit Journal(File file) : file_(std::move(file)) {}

  void append_line(const std::string& text);

  File file_;
  std::uint64_t end_ = 0;
};

// The journals of a directory, kJournalName first.
[[nodiscard]] std::vector<std::filesystem::path> journals_in(
    const std::filesystem::path& directory);

// Locks these journals; nothing when another process holds one of them.
[[nodiscard]] std::optional<std::vector<File>> lock_all(
    const std::vector<std::filesystem::path>& journals);

// What all journals of a directory claim of a job: entry i belongs to item i.
// It stands for nothing until the outputs' bytes were compared with the
// checksums.
[[nodiscard]] std::vector<std::optional<ItemResult>> claims_in(
    const std::filesystem::path& directory,
    const JobKey& key,
    std::size_t items);

}  // namespace nibble::quant
