#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace nibble::text::jinja {

class Value;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>;  // in order

// A value that is absent; most uses of it are errors that name it.
struct Undefined {
  std::string name;
};

struct None {};

// What a template computes with: Python's values as far as templates use
// them. Immutable; containers are shared between copies.
class Value {
 public:
  struct Sequence {
    std::shared_ptr<const List> items;
    bool tuple = false;  // equal only to its like
  };

  struct Mapping {
    std::shared_ptr<const Dict> items;
    bool loop = false;  // the variable of a for loop
  };

  using Data = std::variant<Undefined,
                            None,
                            bool,
                            std::int64_t,
                            double,
                            std::string,
                            Sequence,
                            Mapping>;

  Value() : data_(Undefined{}) {}

  // NOLINTNEXTLINE(google-explicit-constructor): the alternatives are values
  Value(Data data) : data_(std::move(data)) {}

  static Value undefined(std::string name) {
    return Value(Data(Undefined{std::move(name)}));
  }

  static Value none() { return Value(Data(None{})); }

  static Value text(std::string text) { return Value(Data(std::move(text))); }

  static Value boolean(bool value) { return Value(Data(value)); }

  static Value integer(std::int64_t value) { return Value(Data(value)); }

  static Value list(List items, bool tuple = false);
  static Value dict(Dict items, bool loop = false);
  static Value from_json(const nlohmann::ordered_json& json);

  [[nodiscard]] const Data& data() const { return data_; }

  template <typename T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&data_);
  }

  [[nodiscard]] bool is_undefined() const {
    return std::holds_alternative<Undefined>(data_);
  }

  [[nodiscard]] bool is_none() const {
    return std::holds_alternative<None>(data_);
  }

  // "string", "list" ..., for messages.
  [[nodiscard]] std::string_view type_name() const;
  // What "if" makes of it.
  [[nodiscard]] bool truth() const;
  // bool, int or float as a number.
  [[nodiscard]] bool is_number() const;
  [[nodiscard]] double number() const;

 private:
  Data data_;
};

// Python's ==.
[[nodiscard]] bool equal(const Value& a, const Value& b);

// What {{ }} prints. kUnsupported for lists and mappings, whose Python
// spelling is nobody's chat format.
[[nodiscard]] std::string to_text(const Value& value);

// json.dumps(value, ensure_ascii=False, indent=indent); indent < 0: one line.
[[nodiscard]] std::string to_json(const Value& value, std::int64_t indent);

// The member, or nothing.
[[nodiscard]] const Value* find(const Dict& dict, std::string_view key);

}  // namespace nibble::text::jinja
