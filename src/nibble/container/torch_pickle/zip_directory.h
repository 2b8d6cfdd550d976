#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nibble/base/files/file.h"

namespace nibble::container {

// A member of a zip archive whose bytes lie in the file as they are.
struct ZipMember {
  std::string name;
  std::uint64_t offset = 0;  // of the data in the file
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
};

// The members of a zip archive (zip64 too), from its central directory: local
// headers are consulted only for where data begins, since torch.save leaves
// their sizes zero. kCorruptData for an archive that lies or is cut;
// kUnsupported for compressed or encrypted members and for a torch file of the
// form before 1.6. See docs/formats/torch.md.
[[nodiscard]] std::vector<ZipMember> read_zip_directory(const File& file);

// Serialized headers for a writer of stored members. The local header is
// padded so that the data begins at a multiple of `alignment`.
[[nodiscard]] std::string zip_local_header(const std::string& name,
                                           std::uint64_t header_offset,
                                           std::uint64_t bytes,
                                           std::uint32_t crc,
                                           std::uint64_t alignment);

// Central directory, zip64 records and end record for members whose local
// headers begin at header_offsets; the directory itself begins at
// directory_offset.
[[nodiscard]] std::string zip_central_directory(
    std::span<const ZipMember> members,
    std::span<const std::uint64_t> header_offsets,
    std::uint64_t directory_offset);

}  // namespace nibble::container
