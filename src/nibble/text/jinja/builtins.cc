#include "nibble/text/jinja/builtins.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>

#include "nibble/base/error.h"
#include "nibble/text/jinja/limits.h"
#include "nibble/text/jinja/text_tools.h"

namespace nibble::text::jinja {
namespace {

[[noreturn]] void refuse(std::string_view what, std::string_view name) {
  fail_with_hint(ErrorCode::kUnsupported,
                 "this template needs a part of Jinja that is not built in",
                 "{} '{}' is not known",
                 what,
                 printable(name));
}

[[noreturn]] void wrong_type(std::string_view what,
                             const Value& value,
                             std::string_view expected) {
  fail(ErrorCode::kInvalidArgument,
       "{}: found {}, expected {}",
       what,
       value.type_name(),
       expected);
}

// Hands out arguments by place or name, then insists that all were used.
class Reader {
 public:
  Reader(std::string_view what, const Arguments& arguments)
      : what_(what), arguments_(arguments) {}

  std::optional<Value> take(std::string_view name) {
    if (place_ < arguments_.positional.size()) {
      return arguments_.positional[place_++];
    }
    return take_named(name);
  }

  std::optional<Value> take_named(std::string_view name) {
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) {
        ++named_;
        return value;
      }
    }
    return std::nullopt;
  }

  std::string text(std::string_view name) {
    const std::optional<Value> value = take(name);
    if (!value || value->get<std::string>() == nullptr) {
      wrong_type(what_, value.value_or(Value()), "a text as argument");
    }
    return *value->get<std::string>();
  }

  // A text that may be left out or none.
  std::string text_or_empty(std::string_view name) {
    const std::optional<Value> value = take(name);
    if (!value || value->is_none()) {
      return {};
    }
    const std::string* text = value->get<std::string>();
    if (text == nullptr) {
      wrong_type(what_, *value, "a text as argument");
    }
    // Python treats '' otherwise than none, in ways no template needs.
    NIBBLE_CHECK(!text->empty(),
                 kInvalidArgument,
                 "{}: found an empty text as argument",
                 what_);
    return *text;
  }

  std::int64_t integer(const std::optional<Value>& value,
                       std::int64_t absent) const {
    if (!value || value->is_none()) {
      return absent;
    }
    const std::int64_t* number = value->get<std::int64_t>();
    if (number == nullptr) {
      wrong_type(what_, *value, "an integer as argument");
    }
    return *number;
  }

  void done() const {
    if (place_ < arguments_.positional.size() ||
        named_ < arguments_.named.size()) {
      refuse("one of the arguments of", what_);
    }
  }

 private:
  std::string_view what_;
  const Arguments& arguments_;
  std::size_t place_ = 0;
  std::size_t named_ = 0;
};

std::int64_t length(const Value& value) {
  if (const auto* list = value.get<Value::Sequence>()) {
    return static_cast<std::int64_t>(list->items->size());
  }
  if (const auto* dict = value.get<Value::Mapping>(); dict && !dict->loop) {
    return static_cast<std::int64_t>(dict->items->size());
  }
  if (const auto* text = value.get<std::string>()) {
    return static_cast<std::int64_t>(characters(*text).size());
  }
  if (value.is_undefined()) {
    return 0;
  }
  wrong_type("length", value, "a text, list or mapping");
}

std::string replaced(std::string_view text,
                     std::string_view from,
                     std::string_view to) {
  std::string out;
  NIBBLE_CHECK(
      !from.empty(), kUnsupported, "replace: found an empty text to replace");
  std::size_t at = 0;
  for (std::size_t next = text.find(from); next != std::string_view::npos;
       next = text.find(from, at)) {
    out += text.substr(at, next - at);
    out += to;
    check_bytes(out.size());
    at = next + from.size();
  }
  out += text.substr(at);
  return out;
}

std::string joined(const Value& value, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const Value& item : items_of(value)) {
    if (!first) {
      out += separator;
    }
    first = false;
    out += to_text(item);
    check_bytes(out.size());
  }
  return out;
}

using Filter = Value (*)(const Value&, Reader&);

Value filter_default(const Value& value, Reader& arguments) {
  const Value other = arguments.take("default_value").value_or(Value::text(""));
  const bool falsy =
      arguments.take("boolean").value_or(Value::boolean(false)).truth();
  return value.is_undefined() || (falsy && !value.truth()) ? other : value;
}

Value filter_length(const Value& value, Reader& /*arguments*/) {
  return Value::integer(length(value));
}

Value filter_string(const Value& value, Reader& /*arguments*/) {
  return Value::text(to_text(value));
}

Value filter_trim(const Value& value, Reader& arguments) {
  return Value::text(std::string(
      strip(to_text(value), Side::kBoth, arguments.text_or_empty("chars"))));
}

Value filter_upper(const Value& value, Reader& /*arguments*/) {
  return Value::text(change_case(to_text(value), true));
}

Value filter_lower(const Value& value, Reader& /*arguments*/) {
  return Value::text(change_case(to_text(value), false));
}

Value filter_first(const Value& value, Reader& /*arguments*/) {
  const List items = items_of(value);
  return items.empty() ? Value::undefined("first item of nothing")
                       : items.front();
}

Value filter_last(const Value& value, Reader& /*arguments*/) {
  const List items = items_of(value);
  return items.empty() ? Value::undefined("last item of nothing")
                       : items.back();
}

Value filter_list(const Value& value, Reader& /*arguments*/) {
  return Value::list(items_of(value));
}

Value filter_join(const Value& value, Reader& arguments) {
  const std::optional<Value> separator = arguments.take("d");
  return Value::text(joined(value, separator ? to_text(*separator) : ""));
}

Value filter_replace(const Value& value, Reader& arguments) {
  const std::string from = arguments.text("old");
  return Value::text(replaced(to_text(value), from, arguments.text("new")));
}

Value filter_tojson(const Value& value, Reader& arguments) {
  // By name alone: Jinja and the chat environment disagree on the order.
  const bool ascii =
      arguments.take_named("ensure_ascii").value_or(Value()).truth();
  NIBBLE_CHECK(!ascii, kUnsupported, "tojson: ensure_ascii is not known");
  const std::int64_t indent =
      arguments.integer(arguments.take_named("indent"), -1);
  NIBBLE_CHECK(indent <= 64,
               kUnsupported,
               "tojson: found an indent of {}, expected at most 64",
               indent);
  return Value::text(to_json(value, indent));
}

constexpr std::array<std::pair<std::string_view, Filter>, 15> kFilters = {{
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"first", filter_first},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", filter_lower},
    {"replace", filter_replace},
    {"safe", filter_string},  // nothing is escaped here
    {"string", filter_string},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"upper", filter_upper},
}};

using Test = bool (*)(const Value&);

bool is_iterable(const Value& value) {
  return value.get<std::string>() != nullptr ||
         value.get<Value::Sequence>() != nullptr ||
         value.get<Value::Mapping>() != nullptr || value.is_undefined();
}

// Jinja asks for a length and for items: undefined has both to it.
bool is_sequence(const Value& value) {
  return is_iterable(value);
}

constexpr std::array<std::pair<std::string_view, Test>, 13> kTests = {{
    {"boolean", [](const Value& v) { return v.get<bool>() != nullptr; }},
    {"defined", [](const Value& v) { return !v.is_undefined(); }},
    {"false", [](const Value& v) { return v.get<bool>() && !*v.get<bool>(); }},
    {"float", [](const Value& v) { return v.get<double>() != nullptr; }},
    {"integer",
     [](const Value& v) { return v.get<std::int64_t>() != nullptr; }},
    {"iterable", is_iterable},
    {"mapping",
     [](const Value& v) {
       return v.get<Value::Mapping>() && !v.get<Value::Mapping>()->loop;
     }},
    {"none", [](const Value& v) { return v.is_none(); }},
    {"number", [](const Value& v) { return v.is_number(); }},
    {"sequence", is_sequence},
    {"string", [](const Value& v) { return v.get<std::string>() != nullptr; }},
    {"true", [](const Value& v) { return v.get<bool>() && *v.get<bool>(); }},
    {"undefined", [](const Value& v) { return v.is_undefined(); }},
}};

template <typename Table>
auto look_up(const Table& table, std::string_view name) {
  const auto entry =
      std::find_if(table.begin(), table.end(), [&](const auto& known) {
        return known.first == name;
      });
  return entry == table.end() ? nullptr : entry->second;
}

// Names that Python's types have, so that an attribute of that name is never
// taken for an absent one.
constexpr std::array<std::string_view, 47> kTextMethods = {
    "capitalize",   "casefold",     "center",    "count",     "encode",
    "endswith",     "expandtabs",   "find",      "format",    "format_map",
    "index",        "isalnum",      "isalpha",   "isascii",   "isdecimal",
    "isdigit",      "isidentifier", "islower",   "isnumeric", "isprintable",
    "isspace",      "istitle",      "isupper",   "join",      "ljust",
    "lower",        "lstrip",       "maketrans", "partition", "removeprefix",
    "removesuffix", "replace",      "rfind",     "rindex",    "rjust",
    "rpartition",   "rsplit",       "rstrip",    "split",     "splitlines",
    "startswith",   "strip",        "swapcase",  "title",     "translate",
    "upper",        "zfill"};
constexpr std::array<std::string_view, 11> kListMethods = {"append",
                                                           "clear",
                                                           "copy",
                                                           "count",
                                                           "extend",
                                                           "index",
                                                           "insert",
                                                           "pop",
                                                           "remove",
                                                           "reverse",
                                                           "sort"};
constexpr std::array<std::string_view, 11> kDictMethods = {"clear",
                                                           "copy",
                                                           "fromkeys",
                                                           "get",
                                                           "items",
                                                           "keys",
                                                           "pop",
                                                           "popitem",
                                                           "setdefault",
                                                           "update",
                                                           "values"};
constexpr std::array<std::string_view, 10> kNumberMethods = {"as_integer_ratio",
                                                             "bit_count",
                                                             "bit_length",
                                                             "conjugate",
                                                             "denominator",
                                                             "from_bytes",
                                                             "imag",
                                                             "numerator",
                                                             "real",
                                                             "to_bytes"};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// startswith and endswith take one text or a tuple of them.
bool matches_any(const Value& argument, auto matches) {
  if (const auto* text = argument.get<std::string>()) {
    return matches(*text);
  }
  const auto* list = argument.get<Value::Sequence>();
  if (list == nullptr || !list->tuple) {
    wrong_type("startswith or endswith", argument, "a text or tuple of texts");
  }
  return std::any_of(
      list->items->begin(), list->items->end(), [&](const Value& item) {
        return matches_any(item, matches);
      });
}

Value call_text_method(std::string_view name,
                       const std::string& text,
                       Reader& arguments) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Side side = name == "strip"    ? Side::kBoth
                      : name == "lstrip" ? Side::kLeft
                                         : Side::kRight;
    return Value::text(
        std::string(strip(text, side, arguments.text_or_empty("chars"))));
  }
  if (name == "split") {
    const std::string separator = arguments.text_or_empty("sep");
    List parts;
    for (std::string& part :
         split(text,
               separator,
               arguments.integer(arguments.take("maxsplit"), -1))) {
      parts.push_back(Value::text(std::move(part)));
    }
    return Value::list(std::move(parts));
  }
  if (name == "startswith" || name == "endswith") {
    const bool start = name == "startswith";
    return Value::boolean(matches_any(
        arguments.take("prefix").value_or(Value()), [&](const std::string& t) {
          return start ? text.starts_with(t) : text.ends_with(t);
        }));
  }
  if (name == "replace") {
    const std::string from = arguments.text("old");
    return Value::text(replaced(text, from, arguments.text("new")));
  }
  if (name == "upper" || name == "lower") {
    return Value::text(change_case(text, name == "upper"));
  }
  refuse("method", name);
}

Value call_dict_method(std::string_view name,
                       const Dict& dict,
                       Reader& arguments) {
  if (name == "get") {
    const std::string key = arguments.text("key");
    const Value absent = arguments.take("default").value_or(Value::none());
    const Value* member = find(dict, key);
    return member == nullptr ? absent : *member;
  }
  if (name == "items" || name == "keys" || name == "values") {
    List items;
    for (const auto& [key, value] : dict) {
      items.push_back(name == "keys" ? Value::text(key)
                      : name == "values"
                          ? value
                          : Value::list({Value::text(key), value},
                                        /*tuple=*/true));
    }
    return Value::list(std::move(items));
  }
  refuse("method", name);
}

}  // namespace

bool is_filter(std::string_view name) {
  return look_up(kFilters, name) != nullptr;
}

bool is_test(std::string_view name) {
  return look_up(kTests, name) != nullptr;
}

Value apply_filter(std::string_view name,
                   const Value& value,
                   const Arguments& arguments) {
  Reader reader(name, arguments);
  Value result = look_up(kFilters, name)(value, reader);
  reader.done();
  return result;
}

bool apply_test(std::string_view name, const Value& value) {
  return look_up(kTests, name)(value);
}

bool has_method(const Value& value, std::string_view name) {
  if (name.starts_with("__")) {
    return true;
  }
  if (value.get<std::string>() != nullptr) {
    return contains(kTextMethods, name);
  }
  if (value.get<Value::Sequence>() != nullptr) {
    return contains(kListMethods, name);
  }
  if (const auto* dict = value.get<Value::Mapping>()) {
    return dict->loop || contains(kDictMethods, name);
  }
  return value.is_number() && contains(kNumberMethods, name);
}

Value call_method(std::string_view name,
                  const Value& value,
                  const Arguments& arguments) {
  Reader reader(name, arguments);
  Value result;
  if (const auto* text = value.get<std::string>()) {
    result = call_text_method(name, *text, reader);
  } else if (const auto* dict = value.get<Value::Mapping>();
             dict != nullptr && !dict->loop) {
    result = call_dict_method(name, *dict->items, reader);
  } else {
    refuse("method", name);
  }
  reader.done();
  return result;
}

Value call_function(std::string_view name, const Arguments& arguments) {
  if (name != "raise_exception") {
    refuse("function", name);
  }
  Reader reader(name, arguments);
  const std::string text = to_text(reader.take("message").value_or(Value()));
  fail(ErrorCode::kInvalidArgument,
       "the template refuses the conversation: {}",
       printable(text));
}

List items_of(const Value& value) {
  if (const auto* list = value.get<Value::Sequence>()) {
    return *list->items;
  }
  List items;
  if (const auto* dict = value.get<Value::Mapping>(); dict && !dict->loop) {
    for (const auto& member : *dict->items) {
      items.push_back(Value::text(member.first));
    }
  } else if (const auto* text = value.get<std::string>()) {
    for (std::string& character : characters(*text)) {
      items.push_back(Value::text(std::move(character)));
    }
  } else if (!value.is_undefined()) {
    wrong_type("items", value, "a list, mapping or text");
  }
  return items;
}

}  // namespace nibble::text::jinja
