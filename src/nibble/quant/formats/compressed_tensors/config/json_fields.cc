#include "nibble/quant/formats/compressed_tensors/config/json_fields.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/units.h"

namespace nibble::quant::compressed_tensors {
namespace {

[[noreturn]] void wrong_type(const std::string& where,
                             const char* key,
                             const nlohmann::json& found,
                             std::string_view expected) {
  fail(ErrorCode::kCorruptData,
       "config.json: {}.{}: found {}, expected {}",
       where,
       key,
       printable(
           found.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)),
       expected);
}

}  // namespace

const nlohmann::json* field(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool bool_field(const nlohmann::json& object,
                const std::string& where,
                const char* key,
                bool absent) {
  const nlohmann::json* value = field(object, key);
  if (value == nullptr) {
    return absent;
  }
  if (!value->is_boolean()) {
    wrong_type(where, key, *value, "true or false");
  }
  return value->get<bool>();
}

std::int64_t integer_field(const nlohmann::json& object,
                           const std::string& where,
                           const char* key,
                           std::int64_t absent) {
  const nlohmann::json* value = field(object, key);
  if (value == nullptr) {
    return absent;
  }
  // Above 2^53 a size is a lie; get<> would wrap unsigned values.
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 53;
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() && value->get<std::uint64_t>() > kLargest)) {
    wrong_type(where, key, *value, "an integer");
  }
  return value->get<std::int64_t>();
}

std::string text_field(const nlohmann::json& object,
                       const std::string& where,
                       const char* key,
                       std::string_view absent) {
  const nlohmann::json* value = field(object, key);
  if (value == nullptr) {
    return std::string(absent);
  }
  if (!value->is_string()) {
    wrong_type(where, key, *value, "a string");
  }
  return value->get<std::string>();
}

std::vector<std::string> text_list_field(const nlohmann::json& object,
                                         const std::string& where,
                                         const char* key) {
  const nlohmann::json* value = field(object, key);
  if (value == nullptr) {
    return {};
  }
  const bool texts =
      value->is_array() &&
      std::all_of(value->begin(), value->end(), [](const auto& item) {
        return item.is_string();
      });
  if (!texts) {
    wrong_type(where, key, *value, "a list of strings");
  }
  return value->get<std::vector<std::string>>();
}

void check_keys(const nlohmann::json& object,
                const std::string& where,
                std::initializer_list<std::string_view> known) {
  NIBBLE_CHECK(object.is_object(),
               kCorruptData,
               "config.json: {}: found a JSON {}, expected an object",
               where,
               object.type_name());
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) {
      continue;
    }
    const std::string near = nearest_word(key, known);
    fail_with_hint(ErrorCode::kCorruptData,
                   near.empty() ? "" : "did you mean " + near + "?",
                   "config.json: {}: found the unknown key '{}'",
                   where,
                   printable(key));
  }
}

}  // namespace nibble::quant::compressed_tensors
