#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

namespace nibble {

// A file or directory of the optional reference data: outputs of other
// implementations that are too large or not ours to ship. Looked for in the
// directory NIBBLE_REFERENCE_DATA, else in "shared" beside the checkout.
// Nothing when it is absent: the test then skips and says so.
inline std::optional<std::filesystem::path> reference_data(
    std::string_view relative) {
  const char* variable = std::getenv("NIBBLE_REFERENCE_DATA");
  const std::filesystem::path root =
      variable != nullptr
          ? std::filesystem::path(variable)
          : std::filesystem::path(NIBBLE_SOURCE_DIR) / ".." / "shared";
  std::filesystem::path path = root / relative;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return std::nullopt;
  }
  return path;
}

}  // namespace nibble

// Skips the running test, with the reason, when reference data is absent.
#define NIBBLE_REFERENCE_OR_SKIP(variable, relative)                \
  const auto variable##_found = ::nibble::reference_data(relative); \
  if (!variable##_found) {                                          \
    GTEST_SKIP() << "reference data " << (relative)                 \
                 << " is absent (set NIBBLE_REFERENCE_DATA)";       \
  }                                                                 \
  const std::filesystem::path& variable = *variable##_found
