#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"

namespace nibble {

// An empty directory that goes, with all that is in it, with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name =
        (std::filesystem::temp_directory_path() / "nibble-test-XXXXXX")
            .string();
    if (::mkdtemp(name.data()) == nullptr) {
      fail_errno("make temporary directory", name);
    }
    path_ = name;
  }

  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Writes a file of that name (folders are made as needed); its path.
  std::filesystem::path add(const std::filesystem::path& name,
                            std::string_view content) const {
    const std::filesystem::path path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    File::create(path).write(0, std::as_bytes(std::span(content)));
    return path;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace nibble
