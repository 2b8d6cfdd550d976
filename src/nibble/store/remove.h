#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nibble/store/store.h"

namespace nibble::store {

// What a removal would take away, or took.
struct Removal {
  std::vector<std::string> names;  // of versions and downloaded models
  std::uint64_t bytes = 0;         // of disk space
};

// What `remove name` means: one version, or one downloaded model (its versions
// stay); with all, a model's download and every version made from it, name
// being "owner/name", the path of a source outside the store (which itself is
// not touched), or a version, whose model is meant. kNotFound, with the nearest
// name, when that is nothing.
[[nodiscard]] Removal plan_removal(const Store& store,
                                   const std::string& name,
                                   bool all);

// Removes what was planned. Each directory disappears at once under its name,
// then its files are deleted. kInvalidArgument when another process is at work
// on one of them; kIo.
void remove(const Store& store, const Removal& removal);

// Renames a directory to a hidden name beside it, then deletes it: what is
// left of an interrupted removal carries no name of the store.
void remove_directory(const std::filesystem::path& directory);

}  // namespace nibble::store
