#include "nibble/text/jinja/operators.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "nibble/base/checked_math.h"
#include "nibble/base/error.h"
#include "nibble/text/jinja/builtins.h"
#include "nibble/text/jinja/limits.h"

namespace nibble::text::jinja {
namespace {

Value concatenate(const Value& a, const Value& b) {
  std::string text = to_text(a) + to_text(b);
  check_bytes(text.size());
  return Value::text(std::move(text));
}

std::int64_t as_integer(const Value& value) {
  const auto* integer = value.get<std::int64_t>();
  return integer != nullptr ? *integer : value.number() != 0 ? 1 : 0;
}

Value integer_arithmetic(char op, std::int64_t a, std::int64_t b) {
  std::optional<std::int64_t> result;
  if (op == '+') {
    result = checked_add(a, b);
  } else if (op == '-') {
    std::int64_t difference = 0;
    if (!__builtin_sub_overflow(a, b, &difference)) {
      result = difference;
    }
  } else if (op == '*') {
    result = checked_multiply(a, b);
  } else {
    if (b == 0) {
      raise("division by zero");
    }
    if (b == -1) {
      return op == '%' ? Value::integer(0) : integer_arithmetic('-', 0, a);
    }
    // Python rounds down and gives the remainder the divisor's sign.
    const std::int64_t remainder = a % b;
    const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
    result =
        op == '%' ? remainder + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
  }
  NIBBLE_CHECK(result.has_value(),
               kUnsupported,
               "found an integer of more than 64 bits");
  return Value::integer(*result);
}

bool contains(const Value& container, const Value& item) {
  if (const auto* text = container.get<std::string>()) {
    check_defined(item);
    const auto* part = item.get<std::string>();
    if (part == nullptr) {
      raise(fmt::format("in: found {} for a text, expected a text",
                        item.type_name()));
    }
    return text->find(*part) != std::string::npos;
  }
  const List items = items_of(container);
  return std::any_of(items.begin(), items.end(), [&](const Value& other) {
    return equal(other, item);
  });
}

}  // namespace

void raise(std::string_view what) {
  fail(ErrorCode::kInvalidArgument, "{}", what);
}

void check_defined(const Value& value) {
  if (const auto* undefined = value.get<Undefined>()) {
    raise(fmt::format("'{}' is undefined", printable(undefined->name)));
  }
}

Value negative(const Value& value) {
  check_defined(value);
  if (!value.is_number()) {
    raise(fmt::format("-: found {}, expected a number", value.type_name()));
  }
  return value.get<double>() ? Value(Value::Data(-*value.get<double>()))
                             : integer_arithmetic('-', 0, as_integer(value));
}

Value arithmetic(const std::string& op, const Value& a, const Value& b) {
  if (op == "~") {
    return concatenate(a, b);
  }
  check_defined(a);
  check_defined(b);
  if (op == "+" && a.get<std::string>() && b.get<std::string>()) {
    return concatenate(a, b);
  }
  const auto* left = a.get<Value::Sequence>();
  const auto* right = b.get<Value::Sequence>();
  if (op == "+" && left && right && left->tuple == right->tuple) {
    NIBBLE_CHECK(left->items->size() + right->items->size() <= kListItems,
                 kUnsupported,
                 "found a list of more than {} items",
                 kListItems);
    List items = *left->items;
    items.insert(items.end(), right->items->begin(), right->items->end());
    return Value::list(std::move(items), left->tuple);
  }
  if (!a.is_number() || !b.is_number()) {
    // "text" * 3 and "text" % values mean something in Python.
    const bool known_to_python = op == "*" || op == "%";
    fail(
        known_to_python ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument,
        "{}: found {} and {}, expected numbers{}",
        op,
        a.type_name(),
        b.type_name(),
        op == "+" ? ", texts or lists" : "");
  }
  const bool integers = !a.get<double>() && !b.get<double>();
  if (integers && op != "/") {
    return integer_arithmetic(
        op == "//" ? '/' : op[0], as_integer(a), as_integer(b));
  }
  const double x = a.number();
  const double y = b.number();
  if (op == "/") {
    if (y == 0) {
      raise("division by zero");
    }
    return Value(Value::Data(x / y));
  }
  if (op == "//" || op == "%") {
    fail(ErrorCode::kUnsupported, "{}: found floats, expected integers", op);
  }
  return Value(Value::Data(op == "+" ? x + y : op == "-" ? x - y : x * y));
}

bool compare(const std::string& op, const Value& a, const Value& b) {
  if (op == "==" || op == "!=") {
    return equal(a, b) == (op == "==");
  }
  if (op == "in" || op == "not in") {
    return contains(b, a) == (op == "in");
  }
  check_defined(a);
  check_defined(b);
  const auto holds = [&](const auto& x, const auto& y) {
    return op == "<" ? x < y : op == ">" ? x > y : op == "<=" ? x <= y : x >= y;
  };
  if (a.is_number() && b.is_number()) {
    return a.get<std::int64_t>() && b.get<std::int64_t>()
               ? holds(*a.get<std::int64_t>(), *b.get<std::int64_t>())
               : holds(a.number(), b.number());
  }
  if (a.get<std::string>() && b.get<std::string>()) {
    return holds(*a.get<std::string>(), *b.get<std::string>());
  }
  raise(fmt::format("{}: found {} and {}, expected two numbers or two texts",
                    op,
                    a.type_name(),
                    b.type_name()));
}

Value attribute(const Value& value, const std::string& name) {
  check_defined(value);
  const auto* dict = value.get<Value::Mapping>();
  if (dict != nullptr && dict->loop) {
    const Value* member = find(*dict->items, name);
    NIBBLE_CHECK(member != nullptr,
                 kUnsupported,
                 "loop.{} is not known",
                 printable(name));
    return *member;
  }
  NIBBLE_CHECK(!has_method(value, name),
               kUnsupported,
               "method '{}' without a call is not known",
               printable(name));
  const Value* member = dict == nullptr ? nullptr : find(*dict->items, name);
  return member == nullptr ? Value::undefined(name) : *member;
}

Value index(const Value& value, const Value& key) {
  check_defined(value);
  if (const auto* name = key.get<std::string>()) {
    const auto* dict = value.get<Value::Mapping>();
    const Value* member = dict == nullptr ? nullptr : find(*dict->items, *name);
    return member == nullptr ? attribute(value, *name) : *member;
  }
  const bool integer = key.get<std::int64_t>() || key.get<bool>();
  if (!integer || value.get<Value::Mapping>() ||
      !(value.get<Value::Sequence>() || value.get<std::string>())) {
    return Value::undefined(std::string(key.type_name()) + " index");
  }
  // A list is not copied: templates index messages in loops.
  const auto* list = value.get<Value::Sequence>();
  const List letters = list == nullptr ? items_of(value) : List();
  const List& items = list == nullptr ? letters : *list->items;
  const auto count = static_cast<std::int64_t>(items.size());
  const std::int64_t place = as_integer(key);
  const std::int64_t at = place < 0 ? place + count : place;
  return at < 0 || at >= count ? Value::undefined(fmt::format("item {}", place))
                               : items[static_cast<std::size_t>(at)];
}

Value slice(const Value& value, const std::array<Value, 3>& bounds) {
  check_defined(value);
  const bool text = value.get<std::string>() != nullptr;
  const auto* list = value.get<Value::Sequence>();
  if (!text && list == nullptr) {
    return Value::undefined("slice");  // what Jinja makes of the TypeError
  }
  const List items = items_of(value);
  const auto count = static_cast<std::int64_t>(items.size());
  const auto bound = [&](std::size_t i, std::int64_t absent) {
    if (bounds[i].is_none()) {
      return absent;
    }
    const auto* number = bounds[i].get<std::int64_t>();
    if (number == nullptr) {
      raise(fmt::format("slice: found {}, expected integers",
                        bounds[i].type_name()));
    }
    return *number;
  };
  const std::int64_t step =
      std::clamp<std::int64_t>(bound(2, 1), -count - 1, count + 1);
  if (step == 0) {
    raise("slice: found a step of zero");
  }
  const std::int64_t low = step > 0 ? 0 : -1;
  const std::int64_t high = step > 0 ? count : count - 1;
  const auto place = [&](std::size_t i, std::int64_t absent) {
    if (bounds[i].is_none()) {
      return absent;
    }
    const std::int64_t wanted =
        std::clamp<std::int64_t>(bound(i, 0), -count - 1, count);
    return std::clamp(wanted < 0 ? wanted + count : wanted, low, high);
  };
  const std::int64_t begin = place(0, step > 0 ? low : high);
  const std::int64_t end = place(1, step > 0 ? high : low);
  List cut;
  std::string cut_text;
  for (std::int64_t at = begin; step > 0 ? at < end : at > end; at += step) {
    const Value& item = items[static_cast<std::size_t>(at)];
    if (text) {
      cut_text += *item.get<std::string>();
    } else {
      cut.push_back(item);
    }
  }
  return text ? Value::text(std::move(cut_text))
              : Value::list(std::move(cut), list->tuple);
}

}  // namespace nibble::text::jinja
