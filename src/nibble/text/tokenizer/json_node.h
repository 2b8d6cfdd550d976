#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace nibble::text {

// A value of a JSON file together with where it stands, for readers whose
// every refusal names the place. The document must outlive it. All getters
// throw kCorruptData: "PLACE: found number, expected a string".
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string place)
      : value_(&value), place_(std::move(place)) {}

  [[nodiscard]] const nlohmann::json& value() const { return *value_; }

  [[nodiscard]] const std::string& place() const { return place_; }

  // Member of an object; nothing when it is absent or null.
  [[nodiscard]] std::optional<JsonNode> find(std::string_view key) const;
  // Member of an object that must be there.
  [[nodiscard]] JsonNode at(std::string_view key) const;
  [[nodiscard]] std::vector<JsonNode> elements() const;

  [[nodiscard]] const std::string& string() const;
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) const;
  [[nodiscard]] bool boolean() const;

  [[nodiscard]] bool boolean(std::string_view key, bool absent) const {
    const auto node = find(key);
    return node ? node->boolean() : absent;
  }

  // Throws kCorruptData that names what was found here.
  [[noreturn]] void fail_expected(std::string_view expected) const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

// Parses text. kCorruptData with the position when it is not JSON.
[[nodiscard]] nlohmann::json parse_json(std::string_view text);

}  // namespace nibble::text
