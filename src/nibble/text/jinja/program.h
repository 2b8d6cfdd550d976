#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nibble/text/jinja/value.h"

namespace nibble::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

// A node of an expression. What text and children hold depends on the kind.
struct Expression {
  enum class Kind {
    kConstant,   // value
    kName,       // text
    kList,       // children
    kTuple,      // children
    kDict,       // children: key, value, key, value ...
    kNot,        // one child
    kNegate,     // one child
    kAnd,        // two children
    kOr,         // two children
    kBinary,     // text: + - * / // % ~; two children
    kCompare,    // texts: == != < > <= >= in, "not in"; one more child
    kTernary,    // condition, then, else (may be absent)
    kAttribute,  // child.text
    kIndex,      // child[child]
    kSlice,      // child[child:child:child]; the last three may be absent
    kCall,       // text(arguments)
    kMethod,     // child.text(arguments)
    kFilter,     // child | text(arguments)
    kTest,       // child is text
  };

  Kind kind = Kind::kConstant;
  int line = 0;
  int depth = 1;  // longest path to a leaf: bounds recursion
  Value value;
  std::string text;
  std::vector<std::string> texts;
  std::vector<ExpressionPtr> children;
  // Behind the children that the kind needs.
  std::vector<ExpressionPtr> arguments;
  std::vector<std::pair<std::string, ExpressionPtr>> named_arguments;
};

struct Statement;
using Body = std::vector<Statement>;

struct Statement {
  enum class Kind {
    kData,    // text
    kOutput,  // expression
    kIf,      // branches; otherwise
    kFor,     // targets in expression, if condition; body; otherwise
    kSet,     // targets = expression
  };

  struct Branch {
    ExpressionPtr condition;
    Body body;
  };

  Kind kind = Kind::kData;
  int line = 0;
  std::string text;
  std::vector<std::string> targets;
  ExpressionPtr expression;
  ExpressionPtr condition;
  std::vector<Branch> branches;
  Body body;
  Body otherwise;
};

struct Program {
  Body body;
};

// kCorruptData with the line for what is no template, kUnsupported with line
// and name for what this interpreter does not know.
[[nodiscard]] Program parse(std::string_view source);

}  // namespace nibble::text::jinja
