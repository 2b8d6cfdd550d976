#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace nibble::quant::compressed_tensors {

// Reading of typed fields from config.json. `where` is the path of the object,
// for instance "quantization_config.config_groups.group_0.weights"; everything
// that has another type is kCorruptData with the path, found and expected.

// The value of a key, or nullptr when it is absent or null.
[[nodiscard]] const nlohmann::json* field(const nlohmann::json& object,
                                          const char* key);

[[nodiscard]] bool bool_field(const nlohmann::json& object,
                              const std::string& where,
                              const char* key,
                              bool absent);
[[nodiscard]] std::int64_t integer_field(const nlohmann::json& object,
                                         const std::string& where,
                                         const char* key,
                                         std::int64_t absent);
[[nodiscard]] std::string text_field(const nlohmann::json& object,
                                     const std::string& where,
                                     const char* key,
                                     std::string_view absent);
// Absent and null are an empty list.
[[nodiscard]] std::vector<std::string> text_list_field(
    const nlohmann::json& object, const std::string& where, const char* key);

// kCorruptData, with the nearest known key, unless every key of the object is
// one of these.
void check_keys(const nlohmann::json& object,
                const std::string& where,
                std::initializer_list<std::string_view> known);

}  // namespace nibble::quant::compressed_tensors
