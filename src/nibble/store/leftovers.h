#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nibble/store/store.h"

namespace nibble::store {

// What an interrupted download or removal left in the store. (What an
// interrupted quantization left, quant::find_partials finds in versions().)
struct Leftover {
  std::filesystem::path path;
  std::uint64_t bytes = 0;  // on disk
  std::string lock;         // name whose lock guards it; "" = nothing does
  std::string what;         // "download of owner/name", "removed version"
  bool in_use = false;
};

// In the order of paths; writes nothing.
[[nodiscard]] std::vector<Leftover> find_leftovers(const Store& store);

// False, and nothing is removed, when another process works on it.
bool remove_leftover(const Store& store, const Leftover& leftover);

}  // namespace nibble::store
