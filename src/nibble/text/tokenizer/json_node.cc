#include "nibble/text/tokenizer/json_node.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"

namespace nibble::text {
namespace {

std::string describe(const nlohmann::json& value) {
  if (value.is_string()) {
    return fmt::format("string '{}'",
                       printable(value.get_ref<const std::string&>()));
  }
  if (value.is_number() || value.is_boolean()) {
    return fmt::format("{} {}", value.type_name(), value.dump());
  }
  return value.type_name();
}

}  // namespace

void JsonNode::fail_expected(std::string_view expected) const {
  fail(ErrorCode::kCorruptData,
       "{}: found {}, expected {}",
       place_,
       describe(*value_),
       expected);
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!value_->is_object()) {
    fail_expected("an object");
  }
  const auto member = value_->find(key);
  if (member == value_->end() || member->is_null()) {
    return std::nullopt;
  }
  return JsonNode(
      *member,
      place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key));
}

JsonNode JsonNode::at(std::string_view key) const {
  const auto node = find(key);
  NIBBLE_CHECK(node.has_value(),
               kCorruptData,
               "{}: found no {}, expected one",
               place_.empty() ? "top level" : place_,
               key);
  return *node;
}

std::vector<JsonNode> JsonNode::elements() const {
  if (!value_->is_array()) {
    fail_expected("an array");
  }
  std::vector<JsonNode> nodes;
  nodes.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    nodes.emplace_back((*value_)[i], fmt::format("{}[{}]", place_, i));
  }
  return nodes;
}

const std::string& JsonNode::string() const {
  if (!value_->is_string()) {
    fail_expected("a string");
  }
  return value_->get_ref<const std::string&>();
}

std::int64_t JsonNode::integer(std::int64_t low, std::int64_t high) const {
  // An unsigned value above the signed range would wrap when converted.
  const bool fits =
      value_->is_number_integer() &&
      !(value_->is_number_unsigned() &&
        value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX));
  if (!fits || value_->get<std::int64_t>() < low ||
      value_->get<std::int64_t>() > high) {
    fail_expected(fmt::format("an integer from {} to {}", low, high));
  }
  return value_->get<std::int64_t>();
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) {
    fail_expected("true or false");
  }
  return value_->get<bool>();
}

nlohmann::json parse_json(std::string_view text) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::kCorruptData,
         "found no JSON, expected a document: {}",
         printable(error.what()));
  }
}

}  // namespace nibble::text
