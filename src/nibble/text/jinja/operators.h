#pragma once

#include <array>
#include <string>
#include <string_view>

#include "nibble/text/jinja/value.h"

namespace nibble::text::jinja {

// Throws kInvalidArgument: what Python or Jinja would raise.
[[noreturn]] void raise(std::string_view what);

// Throws, with its name, when value is undefined.
void check_defined(const Value& value);

// a op b for + - * / // % and ~.
[[nodiscard]] Value arithmetic(const std::string& op,
                               const Value& a,
                               const Value& b);
// -value.
[[nodiscard]] Value negative(const Value& value);
// a op b for == != < > <= >= in and "not in".
[[nodiscard]] bool compare(const std::string& op,
                           const Value& a,
                           const Value& b);
// value.name without a call.
[[nodiscard]] Value attribute(const Value& value, const std::string& name);
// value[key].
[[nodiscard]] Value index(const Value& value, const Value& key);
// value[begin:end:step] as Python cuts; none for a bound that is left out.
[[nodiscard]] Value slice(const Value& value,
                          const std::array<Value, 3>& bounds);

}  // namespace nibble::text::jinja
