#include "nibble/text/jinja/value.h"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/text/jinja/limits.h"

namespace nibble::text::jinja {
namespace {

// Python's repr of a float: the shortest digits, with ".0" where it would
// look like an integer.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) {
    text += ".0";
  }
  return text;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f";
    static constexpr std::string_view kEscaped = "\"\\nrtbf";
    if (const auto at = kPlain.find(c); at != std::string_view::npos) {
      out += '\\';
      out += kEscaped[at];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

class JsonWriter {
 public:
  explicit JsonWriter(std::int64_t indent) : indent_(indent) {}

  void write(const Value& value) {
    if (const auto* list = value.get<Value::Sequence>()) {
      write_items(
          '[', ']', *list->items, [&](const Value& item) { write(item); });
    } else if (const auto* dict = value.get<Value::Mapping>();
               dict != nullptr && !dict->loop) {
      write_items('{', '}', *dict->items, [&](const auto& member) {
        out += json_string(member.first) + ": ";
        write(member.second);
      });
    } else if (const auto* text = value.get<std::string>()) {
      out += json_string(*text);
    } else if (const auto* flag = value.get<bool>()) {
      out += *flag ? "true" : "false";
    } else if (value.is_none()) {
      out += "null";
    } else {
      NIBBLE_CHECK(value.is_number(),
                   kInvalidArgument,
                   "tojson: found {}, expected something JSON can hold",
                   value.type_name());
      out += to_text(value);
    }
    check_bytes(out.size());
  }

  std::string out;

 private:
  template <typename Items, typename Write>
  void write_items(char open, char close, const Items& items, Write item) {
    out += open;
    ++depth_;
    bool first = true;
    for (const auto& entry : items) {
      if (!first) {
        out += indent_ < 0 ? ", " : ",";
      }
      first = false;
      new_line();
      item(entry);
    }
    --depth_;
    if (!items.empty()) {
      new_line();
    }
    out += close;
  }

  void new_line() {
    if (indent_ >= 0) {
      out += '\n';
      out.append(static_cast<std::size_t>(indent_ * depth_), ' ');
    }
  }

  std::int64_t indent_;
  std::int64_t depth_ = 0;
};

}  // namespace

Value Value::list(List items, bool tuple) {
  return Value(
      Data(Sequence{std::make_shared<const List>(std::move(items)), tuple}));
}

Value Value::dict(Dict items, bool loop) {
  return Value(
      Data(Mapping{std::make_shared<const Dict>(std::move(items)), loop}));
}

Value Value::from_json(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::null:
      return none();
    case nlohmann::json::value_t::boolean:
      return boolean(json.get<bool>());
    case nlohmann::json::value_t::number_unsigned:
      NIBBLE_CHECK(json.get<std::uint64_t>() <=
                       std::uint64_t{std::numeric_limits<std::int64_t>::max()},
                   kUnsupported,
                   "number: found {}, expected less than 2^63",
                   json.get<std::uint64_t>());
      return integer(json.get<std::int64_t>());
    case nlohmann::json::value_t::number_integer:
      return integer(json.get<std::int64_t>());
    case nlohmann::json::value_t::number_float:
      return Value(Data(json.get<double>()));
    case nlohmann::json::value_t::string:
      return text(json.get<std::string>());
    case nlohmann::json::value_t::array: {
      List items;
      for (const auto& item : json) {
        items.push_back(from_json(item));
      }
      return list(std::move(items));
    }
    case nlohmann::json::value_t::object: {
      Dict items;
      for (const auto& [key, item] : json.items()) {
        items.emplace_back(key, from_json(item));
      }
      return dict(std::move(items));
    }
    default:
      fail(ErrorCode::kInternal, "json value of type {}", json.type_name());
  }
}

std::string_view Value::type_name() const {
  static constexpr std::array<std::string_view, 8> kNames = {"undefined",
                                                             "none",
                                                             "boolean",
                                                             "integer",
                                                             "float",
                                                             "string",
                                                             "list",
                                                             "mapping"};
  return kNames[data_.index()];
}

bool Value::truth() const {
  struct Truth {
    bool operator()(const Undefined&) const { return false; }

    bool operator()(const None&) const { return false; }

    bool operator()(bool value) const { return value; }

    bool operator()(std::int64_t value) const { return value != 0; }

    bool operator()(double value) const { return value != 0; }

    bool operator()(const std::string& text) const { return !text.empty(); }

    bool operator()(const Sequence& list) const { return !list.items->empty(); }

    bool operator()(const Mapping& dict) const { return !dict.items->empty(); }
  };

  return std::visit(Truth{}, data_);
}

bool Value::is_number() const {
  return get<bool>() != nullptr || get<std::int64_t>() != nullptr ||
         get<double>() != nullptr;
}

double Value::number() const {
  if (const auto* flag = get<bool>()) {
    return *flag ? 1 : 0;
  }
  if (const auto* integer = get<std::int64_t>()) {
    return static_cast<double>(*integer);
  }
  return std::get<double>(data_);
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const auto* x = a.get<std::int64_t>();
    const auto* y = b.get<std::int64_t>();
    return x != nullptr && y != nullptr ? *x == *y : a.number() == b.number();
  }
  if (a.data().index() != b.data().index()) {
    return false;
  }
  if (const auto* text = a.get<std::string>()) {
    return *text == *b.get<std::string>();
  }
  if (const auto* list = a.get<Value::Sequence>()) {
    const auto* other = b.get<Value::Sequence>();
    return list->tuple == other->tuple && std::equal(list->items->begin(),
                                                     list->items->end(),
                                                     other->items->begin(),
                                                     other->items->end(),
                                                     equal);
  }
  if (const auto* dict = a.get<Value::Mapping>()) {
    const Dict& other = *b.get<Value::Mapping>()->items;
    return dict->items->size() == other.size() &&
           std::all_of(dict->items->begin(),
                       dict->items->end(),
                       [&](const auto& member) {
                         const Value* value = find(other, member.first);
                         return value != nullptr &&
                                equal(member.second, *value);
                       });
  }
  return true;  // undefined or none
}

std::string to_text(const Value& value) {
  struct Text {
    std::string operator()(const Undefined&) const { return {}; }

    std::string operator()(const None&) const { return "None"; }

    std::string operator()(bool flag) const { return flag ? "True" : "False"; }

    std::string operator()(std::int64_t number) const {
      return std::to_string(number);
    }

    std::string operator()(double number) const { return float_text(number); }

    std::string operator()(const std::string& text) const { return text; }

    std::string operator()(const Value::Sequence&) const { refuse("list"); }

    std::string operator()(const Value::Mapping&) const { refuse("mapping"); }

    [[noreturn]] static void refuse(std::string_view what) {
      fail_with_hint(ErrorCode::kUnsupported,
                     "if the message holds structured content, give plain text",
                     "printing: found a {}, expected text or a number",
                     what);
    }
  };

  return std::visit(Text{}, value.data());
}

std::string to_json(const Value& value, std::int64_t indent) {
  JsonWriter writer(indent);
  writer.write(value);
  return std::move(writer.out);
}

const Value* find(const Dict& dict, std::string_view key) {
  const auto member = std::find_if(
      dict.begin(), dict.end(), [&](const auto& m) { return m.first == key; });
  return member == dict.end() ? nullptr : &member->second;
}

}  // namespace nibble::text::jinja
