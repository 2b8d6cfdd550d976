#include "nibble/text/jinja/evaluate.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "nibble/base/error.h"
#include "nibble/text/jinja/builtins.h"
#include "nibble/text/jinja/limits.h"
#include "nibble/text/jinja/operators.h"

namespace nibble::text::jinja {
namespace {

using Node = Expression::Kind;

// Names that Jinja or the chat environment define, and this interpreter does
// not have as values.
constexpr std::array<std::string_view, 9> kForeignGlobals = {"cycler",
                                                             "dict",
                                                             "joiner",
                                                             "lipsum",
                                                             "namespace",
                                                             "raise_exception",
                                                             "range",
                                                             "self",
                                                             "strftime_now"};

// Adds the line to errors of the expression that step evaluates.
template <typename Step>
auto at_line(int line, Step step) {
  try {
    return step();
  } catch (const Error& error) {  // with_context would format every time
    throw Error(error.code(),
                fmt::format("line {}: {}", line, error.what()),
                error.hint());
  }
}

class Evaluator {
 public:
  explicit Evaluator(const Dict& variables) { scopes_.push_back(variables); }

  void run(const Body& body) {
    for (const Statement& statement : body) {
      step(statement.line);
      run(statement);
    }
  }

  std::string out;

 private:
  void step(int line, long cost = 1) {
    steps_ += cost;
    NIBBLE_CHECK(steps_ <= kSteps,
                 kUnsupported,
                 "line {}: found more than {} steps",
                 line,
                 kSteps);
  }

  void run(const Statement& statement) {
    switch (statement.kind) {
      case Statement::Kind::kData:
        print(statement.text);
        return;
      case Statement::Kind::kOutput:
        at_line(statement.line,
                [&] { print(to_text(value_of(*statement.expression))); });
        return;
      case Statement::Kind::kSet:
        at_line(statement.line, [&] {
          assign(statement.targets, value_of(*statement.expression));
        });
        return;
      case Statement::Kind::kIf:
        for (const Statement::Branch& branch : statement.branches) {
          if (at_line(branch.condition->line,
                      [&] { return value_of(*branch.condition).truth(); })) {
            run(branch.body);
            return;
          }
        }
        run(statement.otherwise);
        return;
      case Statement::Kind::kFor:
        run_for(statement);
        return;
    }
  }

  void print(std::string_view text) {
    out += text;
    check_bytes(out.size());
  }

  void assign(const std::vector<std::string>& targets, const Value& value) {
    if (targets.size() == 1) {
      define(targets[0], value);
      return;
    }
    const List items = items_of(value);
    if (items.size() != targets.size()) {
      raise(fmt::format(
          "found {} values for {} names", items.size(), targets.size()));
    }
    for (std::size_t i = 0; i < targets.size(); ++i) {
      define(targets[i], items[i]);
    }
  }

  void define(const std::string& name, Value value) {
    Dict& scope = scopes_.back();
    const auto known =
        std::find_if(scope.begin(), scope.end(), [&](const auto& m) {
          return m.first == name;
        });
    if (known != scope.end()) {
      known->second = std::move(value);
    } else {
      scope.emplace_back(name, std::move(value));
    }
  }

  void run_for(const Statement& statement) {
    const List items = at_line(statement.line, [&] {
      return visited(statement, value_of(*statement.expression));
    });
    if (items.empty()) {
      run(statement.otherwise);
      return;
    }
    const auto count = static_cast<std::int64_t>(items.size());
    for (std::int64_t i = 0; i < count; ++i) {
      step(statement.line, 10);
      // What a round sets is gone after it.
      scopes_.emplace_back();
      const auto neighbour = [&](std::int64_t at, const char* name) {
        return at < 0 || at >= count ? Value::undefined(name)
                                     : items[static_cast<std::size_t>(at)];
      };
      define("loop",
             Value::dict({{"index", Value::integer(i + 1)},
                          {"index0", Value::integer(i)},
                          {"revindex", Value::integer(count - i)},
                          {"revindex0", Value::integer(count - i - 1)},
                          {"first", Value::boolean(i == 0)},
                          {"last", Value::boolean(i + 1 == count)},
                          {"length", Value::integer(count)},
                          {"previtem", neighbour(i - 1, "loop.previtem")},
                          {"nextitem", neighbour(i + 1, "loop.nextitem")}},
                         /*loop=*/true));
      at_line(statement.line, [&] {
        assign(statement.targets, items[static_cast<std::size_t>(i)]);
      });
      run(statement.body);
      scopes_.pop_back();
    }
  }

  // The items that pass the loop's condition.
  List visited(const Statement& statement, const Value& value) {
    List items = items_of(value);
    if (statement.condition == nullptr) {
      return items;
    }
    List kept;
    for (Value& item : items) {
      scopes_.emplace_back();
      assign(statement.targets, item);
      const bool passes = value_of(*statement.condition).truth();
      scopes_.pop_back();
      if (passes) {
        kept.push_back(std::move(item));
      }
    }
    return kept;
  }

  Value variable(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const Value* value = find(*scope, name)) {
        return *value;
      }
    }
    NIBBLE_CHECK(
        std::find(kForeignGlobals.begin(), kForeignGlobals.end(), name) ==
            kForeignGlobals.end(),
        kUnsupported,
        "name '{}' is not known",
        name);
    return Value::undefined(name);
  }

  Arguments arguments(const Expression& node) {
    Arguments arguments;
    for (const ExpressionPtr& argument : node.arguments) {
      arguments.positional.push_back(value_of(*argument));
    }
    for (const auto& [name, argument] : node.named_arguments) {
      arguments.named.emplace_back(name, value_of(*argument));
    }
    return arguments;
  }

  Value method(const Expression& node, const Value& value) {
    check_defined(value);
    if (!has_method(value, node.text)) {
      raise(fmt::format("'{}' is undefined", printable(node.text)));
    }
    return call_method(node.text, value, arguments(node));
  }

  Value call(const Expression& node) {
    for (const Dict& scope : scopes_) {
      if (find(scope, node.text) != nullptr) {
        raise(fmt::format("'{}' is not callable", printable(node.text)));
      }
    }
    return call_function(node.text, arguments(node));
  }

  bool comparison(const Expression& node) {
    Value left = value_of(*node.children[0]);
    for (std::size_t i = 0; i < node.texts.size(); ++i) {
      Value right = value_of(*node.children[i + 1]);
      if (!compare(node.texts[i], left, right)) {
        return false;
      }
      left = std::move(right);
    }
    return true;
  }

  List values(const std::vector<ExpressionPtr>& nodes) {
    List items;
    for (const ExpressionPtr& node : nodes) {
      items.push_back(value_of(*node));
    }
    return items;
  }

  Value dict(const Expression& node) {
    Dict items;
    for (std::size_t i = 0; i < node.children.size(); i += 2) {
      const Value key = value_of(*node.children[i]);
      const auto* name = key.get<std::string>();
      NIBBLE_CHECK(name != nullptr && find(items, *name) == nullptr,
                   kUnsupported,
                   "mapping: found a key that is no text or stands twice");
      items.emplace_back(*name, value_of(*node.children[i + 1]));
    }
    return Value::dict(std::move(items));
  }

  Value optional_value(const ExpressionPtr& node) {
    return node == nullptr ? Value::none() : value_of(*node);
  }

  Value value_of(const Expression& node) {
    Value value = computed(node);
    const auto* text = value.get<std::string>();
    step(node.line,
         text == nullptr ? 1 : 1 + static_cast<long>(text->size() / 1024));
    return value;
  }

  Value computed(const Expression& node) {
    const auto child = [&](std::size_t i) {
      return value_of(*node.children[i]);
    };
    switch (node.kind) {
      case Node::kConstant:
        return node.value;
      case Node::kName:
        return variable(node.text);
      case Node::kList:
      case Node::kTuple:
        return Value::list(values(node.children), node.kind == Node::kTuple);
      case Node::kDict:
        return dict(node);
      case Node::kNot:
        return Value::boolean(!child(0).truth());
      case Node::kNegate:
        return negative(child(0));
      case Node::kAnd: {
        Value left = child(0);
        return left.truth() ? child(1) : left;
      }
      case Node::kOr: {
        Value left = child(0);
        return left.truth() ? left : child(1);
      }
      case Node::kBinary: {
        const Value left = child(0);
        return arithmetic(node.text, left, child(1));
      }
      case Node::kCompare:
        return Value::boolean(comparison(node));
      case Node::kTernary:
        if (child(0).truth()) {
          return child(1);
        }
        return node.children[2] == nullptr ? Value::undefined("else")
                                           : child(2);
      case Node::kAttribute:
        return attribute(child(0), node.text);
      case Node::kIndex: {
        const Value value = child(0);
        return index(value, child(1));
      }
      case Node::kSlice: {
        const Value value = child(0);
        const Value begin = optional_value(node.children[1]);
        const Value end = optional_value(node.children[2]);
        return slice(value, {begin, end, optional_value(node.children[3])});
      }
      case Node::kCall:
        return call(node);
      case Node::kMethod:
        return method(node, child(0));
      case Node::kFilter: {
        const Value value = child(0);
        return apply_filter(node.text, value, arguments(node));
      }
      case Node::kTest:
        return Value::boolean(apply_test(node.text, child(0)));
    }
    fail(ErrorCode::kInternal, "expression {}", static_cast<int>(node.kind));
  }

  std::vector<Dict> scopes_;
  long steps_ = 0;
};

}  // namespace

std::string evaluate(const Program& program, const Dict& variables) {
  Evaluator evaluator(variables);
  evaluator.run(program.body);
  return std::move(evaluator.out);
}

}  // namespace nibble::text::jinja
