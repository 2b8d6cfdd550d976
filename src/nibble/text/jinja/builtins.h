#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "nibble/text/jinja/value.h"

namespace nibble::text::jinja {

// Values given to a filter, method or function.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

[[nodiscard]] bool is_filter(std::string_view name);
[[nodiscard]] bool is_test(std::string_view name);

// value | name(arguments). kUnsupported for an unknown name or argument,
// kInvalidArgument where Python would raise.
[[nodiscard]] Value apply_filter(std::string_view name,
                                 const Value& value,
                                 const Arguments& arguments);
// value is name.
[[nodiscard]] bool apply_test(std::string_view name, const Value& value);
// value.name(arguments).
[[nodiscard]] Value call_method(std::string_view name,
                                const Value& value,
                                const Arguments& arguments);
// name(arguments).
[[nodiscard]] Value call_function(std::string_view name,
                                  const Arguments& arguments);

// Whether Python finds a method of this name on value: text.title is one,
// text.content is not.
[[nodiscard]] bool has_method(const Value& value, std::string_view name);

// What a for loop visits: items of a list, keys of a mapping, characters.
[[nodiscard]] List items_of(const Value& value);

}  // namespace nibble::text::jinja
