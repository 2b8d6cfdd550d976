#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace nibble {

// Deepest nesting of a JSON text that is read; real files stay below 10.
inline constexpr int kMaxJsonDepth = 64;

// The value of a JSON text. kCorruptData, with where, line and column, for
// anything else: syntax errors, bytes that are not UTF-8, a byte order mark, a
// NUL byte, nesting deeper than kMaxJsonDepth. Of equal keys the last counts.
[[nodiscard]] nlohmann::json parse_json(std::string_view text,
                                        std::string_view where);

// The JSON object in a file. kNotFound when it is absent, kCorruptData when
// it holds another kind of value or is larger than limit_bytes.
[[nodiscard]] nlohmann::json read_json_object(
    const std::filesystem::path& path,
    std::uint64_t limit_bytes = std::uint64_t{1} << 28);

}  // namespace nibble
