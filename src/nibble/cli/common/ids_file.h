#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace nibble::cli {

// Token ids of a file that holds one flat JSON array of them. kNotFound,
// kCorruptData with the position of what is not an id below vocabulary.
[[nodiscard]] std::vector<std::int32_t> read_ids(const std::string& path,
                                                 std::int64_t vocabulary);

// The same from parsed JSON; where names it in errors.
[[nodiscard]] std::vector<std::int32_t> ids_of(const nlohmann::json& array,
                                               const std::string& where,
                                               std::int64_t vocabulary);

}  // namespace nibble::cli
