#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "nibble/base/function_ref.h"
#include "nibble/container/checkpoint.h"
#include "nibble/container/tensor_part.h"

namespace nibble::quant {

// Hands over the bytes of a tensor or of a part of one in order, in chunks of
// whole elements.
void for_chunks(
    const container::CheckpointReader& reader,
    const container::PlacedPart& part,
    FunctionRef<void(std::uint64_t offset, std::span<const std::byte>)> body);

// Digest of a tensor's bytes as they stand in its file.
[[nodiscard]] std::string checksum_of(const container::CheckpointReader& reader,
                                      const container::TensorInfo& tensor);
[[nodiscard]] std::string checksum_of(const container::CheckpointReader& reader,
                                      const container::PlacedPart& part);

// Digest of a tensor's bytes as a file that is not complete yet holds them.
[[nodiscard]] std::string checksum_of(const container::CheckpointWriter& writer,
                                      std::string_view name,
                                      std::uint64_t bytes);

}  // namespace nibble::quant
