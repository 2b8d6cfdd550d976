#include "nibble/quant/pipeline/execute/checksum.h"

#include <algorithm>
#include <vector>

#include "nibble/base/hash/hash.h"

namespace nibble::quant {
namespace {

using container::CheckpointReader;
using container::TensorInfo;

constexpr std::uint64_t kChunkBytes = 1 << 20;

}  // namespace

void for_chunks(
    const CheckpointReader& reader,
    const container::PlacedPart& part,
    FunctionRef<void(std::uint64_t offset, std::span<const std::byte>)> body) {
  std::vector<std::byte> chunk(
      static_cast<std::size_t>(std::min(part.bytes, kChunkBytes)));
  for (std::uint64_t at = 0; at < part.bytes; at += chunk.size()) {
    const auto bytes = std::span(chunk).first(static_cast<std::size_t>(
        std::min<std::uint64_t>(chunk.size(), part.bytes - at)));
    reader.read(*part.tensor, part.offset + at, bytes);
    body(at, bytes);
  }
}

std::string checksum_of(const container::CheckpointWriter& writer,
                        std::string_view name,
                        std::uint64_t bytes) {
  std::vector<std::byte> chunk(
      static_cast<std::size_t>(std::min(bytes, kChunkBytes)));
  Hasher hasher;
  for (std::uint64_t at = 0; at < bytes; at += chunk.size()) {
    const auto part = std::span(chunk).first(static_cast<std::size_t>(
        std::min<std::uint64_t>(chunk.size(), bytes - at)));
    writer.read(name, at, part);
    hasher.update(part);
  }
  return hasher.digest();
}

std::string checksum_of(const CheckpointReader& reader,
                        const container::PlacedPart& part) {
  Hasher hasher;
  for_chunks(
      reader, part, [&](std::uint64_t, std::span<const std::byte> bytes) {
        hasher.update(bytes);
      });
  return hasher.digest();
}

std::string checksum_of(const CheckpointReader& reader,
                        const TensorInfo& tensor) {
  return checksum_of(reader, {&tensor, 0, tensor.bytes});
}

}  // namespace nibble::quant
