#include "nibble/model/config_json.h"

#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"

namespace nibble::model {
namespace {

using nlohmann::json;

// The class of a model_type, for the old files that name no architecture.
std::string_view class_of_model_type(std::string_view model_type) {
  if (model_type == "llama") {
    return "LlamaForCausalLM";
  }
  if (model_type == "llama4_text") {
    return "Llama4ForCausalLM";
  }
  if (model_type == "llama4") {
    return "Llama4ForConditionalGeneration";
  }
  return model_type;
}

}  // namespace

std::string printable_value(const json& value) {
  if (value.is_array() && value.size() > 16) {
    return fmt::format("a list of {}", value.size());
  }
  if (value.is_object()) {
    return "an object";
  }
  return printable(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

std::int64_t checked_integer(const json& value,
                             const std::string& where,
                             std::int64_t least,
                             std::int64_t most) {
  std::int64_t result = 0;
  bool good = false;
  if (value.is_number_unsigned()) {
    const auto wide = value.get<std::uint64_t>();
    good = wide <=
           static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    result = good ? static_cast<std::int64_t>(wide) : 0;
  } else if (value.is_number_integer()) {
    result = value.get<std::int64_t>();
    good = true;
  } else if (value.is_number_float()) {
    const double wide = value.get<double>();
    good = std::isfinite(wide) && std::trunc(wide) == wide &&
           std::fabs(wide) < 9.0e18;
    result = good ? static_cast<std::int64_t>(wide) : 0;
  }
  NIBBLE_CHECK(good && result >= least && result <= most,
               kCorruptData,
               "{}: found {}, expected an integer from {} to {}",
               where,
               printable_value(value),
               least,
               most);
  return result;
}

Fields::Fields(const json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  NIBBLE_CHECK(object.is_object(),
               kCorruptData,
               "{}: found {}, expected a JSON object",
               where_,
               printable_value(object));
}

std::string Fields::place(std::string_view key) const {
  return fmt::format("{}: {}", where_, key);
}

const json* Fields::find(std::string_view key) const {
  const auto entry = object_.find(key);
  return entry == object_.end() || entry->is_null() ? nullptr : &*entry;
}

bool Fields::contains(std::string_view key) const {
  return object_.find(key) != object_.end();
}

std::int64_t Fields::integer(std::string_view key,
                             std::int64_t absent,
                             std::int64_t least,
                             std::int64_t most) const {
  const json* value = find(key);
  return value == nullptr ? absent
                          : checked_integer(*value, place(key), least, most);
}

double Fields::number(std::string_view key,
                      double absent,
                      double least,
                      double most) const {
  const json* value = find(key);
  if (value == nullptr) {
    return absent;
  }
  const double result = value->is_number()
                            ? value->get<double>()
                            : std::numeric_limits<double>::quiet_NaN();
  // Written so that NaN fails.
  NIBBLE_CHECK(result >= least && result <= most,
               kCorruptData,
               "{}: found {}, expected a number from {} to {}",
               place(key),
               printable_value(*value),
               least,
               most);
  return result;
}

bool Fields::boolean(std::string_view key, bool absent) const {
  const json* value = find(key);
  if (value == nullptr) {
    return absent;
  }
  NIBBLE_CHECK(value->is_boolean(),
               kCorruptData,
               "{}: found {}, expected true or false",
               place(key),
               printable_value(*value));
  return value->get<bool>();
}

std::string Fields::text(std::string_view key, std::string_view absent) const {
  const json* value = find(key);
  if (value == nullptr) {
    return std::string(absent);
  }
  NIBBLE_CHECK(value->is_string(),
               kCorruptData,
               "{}: found {}, expected a text",
               place(key),
               printable_value(*value));
  return value->get<std::string>();
}

std::string architecture_of(const json& config) {
  const Fields fields(config, "config.json");
  const json* list = fields.find("architectures");
  if (list != nullptr) {
    NIBBLE_CHECK(list->is_array() && (list->empty() || (*list)[0].is_string()),
                 kCorruptData,
                 "{}: found {}, expected a list of class names",
                 fields.place("architectures"),
                 printable_value(*list));
    if (!list->empty()) {
      return (*list)[0].get<std::string>();
    }
  }
  return std::string(class_of_model_type(fields.text("model_type", "")));
}

const json& text_config_of(const json& config) {
  const json* text = Fields(config, "config.json").find("text_config");
  return text == nullptr ? config : *text;
}

}  // namespace nibble::model
