#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace nibble::container {

inline constexpr std::string_view kSafetensorsIndexName =
    "model.safetensors.index.json";
inline constexpr std::string_view kSafetensorsSingleName = "model.safetensors";

// The index of a checkpoint in several files.
struct SafetensorsIndex {
  std::map<std::string, std::string, std::less<>> weight_map;  // tensor: file
  std::optional<std::uint64_t> total_bytes;  // metadata.total_size, advisory
};

// Parses and validates an index. kCorruptData for bad JSON, a tensor named
// twice, no weight_map, or a file name that is not a plain one ("../x").
[[nodiscard]] SafetensorsIndex parse_safetensors_index(std::string_view text);

// Text of an index as transformers writes it: sorted, two spaces of indent.
[[nodiscard]] std::string serialize_safetensors_index(
    const SafetensorsIndex& index);

// Name of file number (from 0) of count: "model.safetensors" when it is the
// only one, else "model-00001-of-00012.safetensors".
[[nodiscard]] std::string safetensors_file_name(std::size_t number,
                                                std::size_t count);

}  // namespace nibble::container
