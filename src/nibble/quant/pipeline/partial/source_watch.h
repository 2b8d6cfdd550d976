#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nibble/container/checkpoint.h"

namespace nibble::quant {

// Size and time of each file of a source as they were when the object was made,
// to notice that somebody changes or deletes one while it is being read. Open
// files stay readable after that, but what was read before and after would not
// belong together.
class SourceWatch {
 public:
  // kIo when a file is not there.
  explicit SourceWatch(const container::CheckpointReader& reader);

  // kIo that names the file, an index into reader.files(), unless it still is
  // what it was. Thread-safe.
  void check(std::size_t file) const;
  void check_all() const;

  // Digest of names, sizes and times; not of folders, so that a source may
  // move between two runs.
  [[nodiscard]] std::string digest() const;

 private:
  struct Stamp {
    std::filesystem::path path;
    std::uint64_t bytes = 0;
    std::int64_t time = 0;  // of the last change, ns

    bool operator==(const Stamp&) const = default;
  };

  [[nodiscard]] static Stamp stamp_of(const std::filesystem::path& path);

  std::vector<Stamp> stamps_;
};

}  // namespace nibble::quant
