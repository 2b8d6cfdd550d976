#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace nibble::quant {

// The text of a JSON object with one top-level entry set: replaced in place,
// or added as the last one in the file's own indentation. Every byte outside
// that entry stays as it was (number spellings, key order, line ends), because
// engines read config.json more closely than any parser we could rewrite it
// with. kCorruptData when text is not a JSON object.
[[nodiscard]] std::string with_entry(std::string_view text,
                                     std::string_view key,
                                     const nlohmann::json& value);

// text, a JSON object, without the entry of that name, if any.
[[nodiscard]] std::string without_entry(std::string_view text,
                                        std::string_view key);

}  // namespace nibble::quant
