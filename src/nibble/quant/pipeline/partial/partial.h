#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nibble/quant/pipeline/partial/journal.h"

namespace nibble::quant {

// A result that was begun and not finished: "OUT.partial" with a journal.
struct Partial {
  std::filesystem::path path;
  std::uint64_t bytes = 0;  // on disk
  std::string source_path;  // what it was being made from; "" = not known
  bool in_use = false;      // a running process works on it
};

// The partial result at path; nothing when path is anything else. Only
// directories of that name that hold a journal which nibble began count, never
// links.
[[nodiscard]] std::optional<Partial> partial_at(
    const std::filesystem::path& path);

// directory itself, if it is one, or the partial results in it, by name.
// kNotFound when there is no such directory.
[[nodiscard]] std::vector<Partial> find_partials(
    const std::filesystem::path& directory);

// Removes a partial result, holding its lock meanwhile; false, and nothing is
// removed, when a process works on it. kInvalidArgument when path is none.
bool remove_partial(const std::filesystem::path& path);

// Removes a directory, its journal last: what a kill leaves of it is still
// known as a partial result. For those who hold the lock.
void remove_journal_last(const std::filesystem::path& directory);

}  // namespace nibble::quant
