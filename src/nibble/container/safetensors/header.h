#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/container/checkpoint.h"

namespace nibble::container {

// A safetensors file is: the header's length N (8 bytes, little-endian), a
// JSON header of N bytes, then the tensors' bytes back to back
// (docs/formats/safetensors.md).

inline constexpr std::uint64_t kSafetensorsLengthBytes = 8;
inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;
// More than any model has; stops headers made of millions of empty tensors.
inline constexpr std::size_t kMaxSafetensorsTensors = 4'000'000;
inline constexpr std::size_t kMaxSafetensorsRank = 32;

using TextMetadata = std::map<std::string, std::string>;

// What a header says, after every check.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in order of their data; file = 0
  // Where each tensor's data begins, in bytes from the start of the file.
  std::vector<std::uint64_t> offsets;
  TextMetadata metadata;
};

// N from the first bytes of a file (up to 64 of them, or all that there are).
// kCorruptData when the file is too short, N is above the limit or beyond the
// file's end, or the file is a Git LFS pointer.
[[nodiscard]] std::uint64_t safetensors_header_bytes(
    std::span<const std::byte> first, std::uint64_t file_bytes);

// Parses and validates the N bytes of a header: every byte of the data must
// belong to exactly one tensor, and the data must end where the file ends.
// kCorruptData names the tensor and the fault; kUnsupported for a dtype or a
// number of dimensions that is not known here. Linear in the text's size (and
// n log n in the number of tensors); memory is bounded by the caps above.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(
    std::string_view text,
    std::uint64_t file_bytes,
    std::size_t max_tensors = kMaxSafetensorsTensors);

// Length and header text of a file that holds tensors back to back in this
// order, padded with spaces to a multiple of 8 bytes: the bytes that precede
// the data. kInvalidArgument for a duplicate or reserved name, a name that is
// not UTF-8, a block encoding, or bytes that do not follow from dtype and
// shape.
[[nodiscard]] std::string serialize_safetensors_header(
    std::span<const TensorInfo> tensors, const TextMetadata& metadata);

// Sorts as the reference writer does: wide dtypes first, then by name. Files
// so sorted have the reference writer's bytes, and aligned tensors.
void sort_like_reference(std::vector<TensorInfo>& tensors);

// Bytes of a tensor, or nothing when the count overflows or is not whole.
[[nodiscard]] std::optional<std::uint64_t> tensor_bytes(DType dtype,
                                                        const Shape& shape);

}  // namespace nibble::container
