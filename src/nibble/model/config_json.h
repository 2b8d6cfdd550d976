#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace nibble::model {

// Checked access to the entries of one JSON object of a config file. A null
// counts as absent, as in the files' own software; an entry of the wrong type
// or outside its range is kCorruptData and names itself. Views the object.
class Fields {
 public:
  // where stands before messages: "config.json: text_config". Throws unless
  // object is a JSON object.
  Fields(const nlohmann::json& object, std::string where);

  // The entry, or nullptr when it is absent or null.
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const;
  // Whether the entry exists, even as null.
  [[nodiscard]] bool contains(std::string_view key) const;
  [[nodiscard]] std::int64_t integer(std::string_view key,
                                     std::int64_t absent,
                                     std::int64_t least,
                                     std::int64_t most) const;
  // Finite, in [least, most].
  [[nodiscard]] double number(std::string_view key,
                              double absent,
                              double least,
                              double most) const;
  [[nodiscard]] bool boolean(std::string_view key, bool absent) const;
  [[nodiscard]] std::string text(std::string_view key,
                                 std::string_view absent) const;

  // "config.json: KEY", for messages.
  [[nodiscard]] std::string place(std::string_view key) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

// An integer in [least, most], also when it is written as 8192.0; kCorruptData
// with where otherwise.
[[nodiscard]] std::int64_t checked_integer(const nlohmann::json& value,
                                           const std::string& where,
                                           std::int64_t least,
                                           std::int64_t most);

// A value as it would stand in a file, made short and safe to print.
[[nodiscard]] std::string printable_value(const nlohmann::json& value);

// architectures[0], or the class that belongs to model_type, or "".
// kCorruptData when either has the wrong type.
[[nodiscard]] std::string architecture_of(const nlohmann::json& config);

// The object that describes the decoder: text_config of a multimodal wrapper,
// else config itself.
[[nodiscard]] const nlohmann::json& text_config_of(
    const nlohmann::json& config);

}  // namespace nibble::model
