#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>

#include "nibble/base/error.h"
#include "nibble/text/jinja/builtins.h"
#include "nibble/text/jinja/lexer.h"
#include "nibble/text/jinja/limits.h"
#include "nibble/text/jinja/program.h"

namespace nibble::text::jinja {
namespace {

using Kind = Token::Kind;
using Node = Expression::Kind;
using Made = std::unique_ptr<Expression>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Program program() {
    Program program;
    program.body = body({});
    return program;
  }

 private:
  // ---- tokens ----

  [[nodiscard]] const Token& peek() const { return tokens_[at_]; }

  Token take() {
    Token token = tokens_[at_];
    if (token.kind != Kind::kEnd) {
      ++at_;
    }
    return token;
  }

  [[nodiscard]] bool is(Kind kind, std::string_view text) const {
    return peek().kind == kind && peek().text == text;
  }

  bool skip(Kind kind, std::string_view text) {
    if (!is(kind, text)) {
      return false;
    }
    ++at_;
    return true;
  }

  bool skip_symbol(std::string_view text) {
    return skip(Kind::kOperator, text);
  }

  bool skip_word(std::string_view text) { return skip(Kind::kName, text); }

  void expect_symbol(std::string_view text) {
    if (!skip_symbol(text)) {
      corrupt(text);
    }
  }

  void expect(Kind kind, std::string_view what) {
    if (peek().kind != kind) {
      corrupt(what);
    }
    ++at_;
  }

  std::string name() {
    if (peek().kind != Kind::kName) {
      corrupt("a name");
    }
    return take().text;
  }

  [[noreturn]] void corrupt(std::string_view expected) const {
    const Token& token = peek();
    fail(ErrorCode::kCorruptData,
         "line {}: found {}, expected {}",
         token.line,
         token.kind == Kind::kEnd         ? "the end of the template"
         : token.kind == Kind::kBlockEnd  ? "%}"
         : token.kind == Kind::kOutputEnd ? "}}"
                                          : "'" + printable(token.text) + "'",
         expected);
  }

  [[noreturn]] static void unknown(int line,
                                   std::string_view what,
                                   std::string_view name) {
    fail_with_hint(ErrorCode::kUnsupported,
                   "this template needs a part of Jinja that is not built in",
                   "line {}: {} '{}' is not known",
                   line,
                   what,
                   printable(name));
  }

  // ---- nodes ----

  // Finishes a node: its depth bounds every later recursion over the tree.
  static ExpressionPtr done(Made node) {
    const auto count = [&](const ExpressionPtr& child) {
      if (child) {
        node->depth = std::max(node->depth, child->depth + 1);
      }
    };
    std::for_each(node->children.begin(), node->children.end(), count);
    std::for_each(node->arguments.begin(), node->arguments.end(), count);
    for (const auto& argument : node->named_arguments) {
      count(argument.second);
    }
    NIBBLE_CHECK(node->depth <= kDepth,
                 kUnsupported,
                 "line {}: found an expression deeper than {}",
                 node->line,
                 kDepth);
    return node;
  }

  [[nodiscard]] Made make(Node kind) const {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = peek().line;
    return node;
  }

  template <typename... Children>
  [[nodiscard]] ExpressionPtr make_of(Node kind,
                                      std::string text,
                                      Children... children) const {
    Made node = make(kind);
    node->text = std::move(text);
    (node->children.push_back(std::move(children)), ...);
    return done(std::move(node));
  }

  [[nodiscard]] ExpressionPtr constant(Value value) const {
    Made node = make(Node::kConstant);
    node->value = std::move(value);
    return node;
  }

  // Counts nesting while it lives: hostile brackets must not use up the stack.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      ++parser_.level_;
      NIBBLE_CHECK(parser_.level_ <= kDepth,
                   kUnsupported,
                   "line {}: found more than {} nested levels",
                   parser_.peek().line,
                   kDepth);
    }

    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

    ~Level() { --parser_.level_; }

   private:
    Parser& parser_;
  };

  // ---- statements ----

  // Statements up to a tag whose name is in ends, which is left to the caller
  // ({} = up to the end).
  Body body(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    Body body;
    while (true) {
      const Token token = take();
      if (token.kind == Kind::kEnd) {
        if (ends.size() != 0) {
          corrupt("{% " + std::string(*(ends.end() - 1)) + " %}");
        }
        return body;
      }
      Statement statement;
      statement.line = token.line;
      if (token.kind == Kind::kData) {
        statement.kind = Statement::Kind::kData;
        statement.text = token.text;
      } else if (token.kind == Kind::kOutputBegin) {
        statement.kind = Statement::Kind::kOutput;
        statement.expression = tuple(&Parser::ternary);
        expect(Kind::kOutputEnd, "}}");
      } else {
        if (peek().kind == Kind::kName &&
            std::find(ends.begin(), ends.end(), peek().text) != ends.end()) {
          return body;
        }
        tag(statement);
      }
      body.push_back(std::move(statement));
    }
  }

  void tag(Statement& statement) {
    const int line = peek().line;
    const std::string word = name();
    if (word == "if") {
      if_tag(statement);
    } else if (word == "for") {
      for_tag(statement);
    } else if (word == "set") {
      set_tag(statement);
    } else if (word == "elif" || word == "else" || word.starts_with("end")) {
      fail(ErrorCode::kCorruptData,
           "line {}: found '{}' without the tag it belongs to",
           line,
           printable(word));
    } else {
      unknown(line, "tag", word);
    }
  }

  void end_of_tag() { expect(Kind::kBlockEnd, "%}"); }

  void if_tag(Statement& statement) {
    statement.kind = Statement::Kind::kIf;
    std::string word = "if";
    while (word != "endif") {
      if (word == "else") {
        end_of_tag();
        statement.otherwise = body({"endif"});
      } else {
        Statement::Branch branch;
        branch.condition = tuple(&Parser::either);
        end_of_tag();
        branch.body = body({"elif", "else", "endif"});
        statement.branches.push_back(std::move(branch));
      }
      word = name();
    }
    end_of_tag();
  }

  void for_tag(Statement& statement) {
    statement.kind = Statement::Kind::kFor;
    do {
      statement.targets.push_back(name());
    } while (skip_symbol(","));
    if (!skip_word("in")) {
      corrupt("in");
    }
    statement.expression = tuple(&Parser::either);
    if (skip_word("if")) {
      statement.condition = ternary();
    }
    if (is(Kind::kName, "recursive")) {
      unknown(peek().line, "loop modifier", "recursive");
    }
    end_of_tag();
    statement.body = body({"else", "endfor"});
    if (name() == "else") {
      end_of_tag();
      statement.otherwise = body({"endfor"});
      name();
    }
    end_of_tag();
  }

  void set_tag(Statement& statement) {
    statement.kind = Statement::Kind::kSet;
    do {
      statement.targets.push_back(name());
    } while (skip_symbol(","));
    if (is(Kind::kOperator, ".")) {
      unknown(
          peek().line, "assignment to an attribute of", statement.targets[0]);
    }
    if (!is(Kind::kOperator, "=")) {
      unknown(peek().line, "block assignment of", statement.targets[0]);
    }
    take();
    statement.expression = tuple(&Parser::ternary);
    end_of_tag();
  }

  // ---- expressions, from the loosest to the tightest ----

  // One expression, or several with commas.
  ExpressionPtr tuple(ExpressionPtr (Parser::*element)()) {
    ExpressionPtr first = (this->*element)();
    if (!is(Kind::kOperator, ",")) {
      return first;
    }
    Made node = make(Node::kTuple);
    node->children.push_back(std::move(first));
    while (skip_symbol(",")) {
      if (peek().kind == Kind::kBlockEnd || peek().kind == Kind::kOutputEnd ||
          is(Kind::kOperator, ")")) {
        break;
      }
      node->children.push_back((this->*element)());
    }
    return done(std::move(node));
  }

  ExpressionPtr ternary() {
    const Level level(*this);
    ExpressionPtr value = either();
    while (skip_word("if")) {
      ExpressionPtr condition = either();
      ExpressionPtr otherwise = skip_word("else") ? ternary() : nullptr;
      value = make_of(Node::kTernary,
                      "",
                      std::move(condition),
                      std::move(value),
                      std::move(otherwise));
    }
    return value;
  }

  ExpressionPtr either() {
    ExpressionPtr left = both();
    while (skip_word("or")) {
      ExpressionPtr right = both();
      left = make_of(Node::kOr, "", std::move(left), std::move(right));
    }
    return left;
  }

  ExpressionPtr both() {
    ExpressionPtr left = negation();
    while (skip_word("and")) {
      ExpressionPtr right = negation();
      left = make_of(Node::kAnd, "", std::move(left), std::move(right));
    }
    return left;
  }

  ExpressionPtr negation() {
    const Level level(*this);
    if (skip_word("not")) {
      return make_of(Node::kNot, "", negation());
    }
    return comparison();
  }

  std::string comparison_operator() {
    for (const std::string_view text : {"==", "!=", "<", ">", "<=", ">="}) {
      if (skip_symbol(text)) {
        return std::string(text);
      }
    }
    if (skip_word("in")) {
      return "in";
    }
    if (is(Kind::kName, "not") && tokens_[at_ + 1].kind == Kind::kName &&
        tokens_[at_ + 1].text == "in") {
      at_ += 2;
      return "not in";
    }
    return {};
  }

  ExpressionPtr comparison() {
    ExpressionPtr first = sum();
    std::string text = comparison_operator();
    if (text.empty()) {
      return first;
    }
    Made node = make(Node::kCompare);
    node->children.push_back(std::move(first));
    while (!text.empty()) {
      node->texts.push_back(std::move(text));
      node->children.push_back(sum());
      text = comparison_operator();
    }
    return done(std::move(node));
  }

  // Left-associative operators of one level.
  ExpressionPtr chain(std::initializer_list<std::string_view> operators,
                      ExpressionPtr (Parser::*operand)()) {
    ExpressionPtr left = (this->*operand)();
    while (peek().kind == Kind::kOperator &&
           std::find(operators.begin(), operators.end(), peek().text) !=
               operators.end()) {
      std::string text = take().text;
      ExpressionPtr right = (this->*operand)();
      left = make_of(
          Node::kBinary, std::move(text), std::move(left), std::move(right));
    }
    return left;
  }

  ExpressionPtr sum() { return chain({"+", "-"}, &Parser::concatenation); }

  ExpressionPtr concatenation() { return chain({"~"}, &Parser::product); }

  ExpressionPtr product() {
    ExpressionPtr value = chain({"*", "/", "//", "%"}, &Parser::filtered);
    if (is(Kind::kOperator, "**")) {
      unknown(peek().line, "operator", "**");
    }
    return value;
  }

  ExpressionPtr filtered() { return filters(postfix(unary())); }

  ExpressionPtr unary() {
    const Level level(*this);
    if (skip_symbol("-")) {
      return make_of(Node::kNegate, "", postfix(unary()));
    }
    if (is(Kind::kOperator, "+")) {
      unknown(peek().line, "unary operator", "+");
    }
    return primary();
  }

  ExpressionPtr primary() {
    const Token token = take();
    switch (token.kind) {
      case Kind::kName:
        return named(token.text);
      case Kind::kString: {
        std::string text = token.text;
        while (peek().kind == Kind::kString) {
          text += take().text;
        }
        return constant(Value::text(std::move(text)));
      }
      case Kind::kInteger:
        return constant(Value::integer(number<std::int64_t>(token)));
      case Kind::kFloat:
        return constant(Value(Value::Data(number<double>(token))));
      default:
        break;
    }
    if (token.kind == Kind::kOperator) {
      if (token.text == "(") {
        if (skip_symbol(")")) {
          return make_of(Node::kTuple, "");
        }
        ExpressionPtr inner = tuple(&Parser::ternary);
        expect_symbol(")");
        return inner;
      }
      if (token.text == "[") {
        return list();
      }
      if (token.text == "{") {
        return dict();
      }
    }
    --at_;
    corrupt("an expression");
  }

  template <typename Number>
  static Number number(const Token& token) {
    Number value{};
    const char* end = token.text.data() + token.text.size();
    const auto parsed = std::from_chars(token.text.data(), end, value);
    NIBBLE_CHECK(parsed.ec == std::errc{} && parsed.ptr == end,
                 kUnsupported,
                 "line {}: found {}, expected a number of 64 bits",
                 token.line,
                 printable(token.text));
    return value;
  }

  ExpressionPtr named(const std::string& word) {
    if (word == "true" || word == "True") {
      return constant(Value::boolean(true));
    }
    if (word == "false" || word == "False") {
      return constant(Value::boolean(false));
    }
    if (word == "none" || word == "None") {
      return constant(Value::none());
    }
    static constexpr std::array<std::string_view, 8> kReserved = {
        "if", "else", "elif", "and", "or", "not", "in", "is"};
    if (std::find(kReserved.begin(), kReserved.end(), word) !=
        kReserved.end()) {
      --at_;
      corrupt("an expression");
    }
    return make_of(Node::kName, word);
  }

  ExpressionPtr list() {
    Made node = make(Node::kList);
    while (!skip_symbol("]")) {
      if (!node->children.empty()) {
        expect_symbol(",");
        if (skip_symbol("]")) {
          break;
        }
      }
      node->children.push_back(ternary());
    }
    return done(std::move(node));
  }

  ExpressionPtr dict() {
    Made node = make(Node::kDict);
    while (!skip_symbol("}")) {
      if (!node->children.empty()) {
        expect_symbol(",");
        if (skip_symbol("}")) {
          break;
        }
      }
      node->children.push_back(ternary());
      expect_symbol(":");
      node->children.push_back(ternary());
    }
    return done(std::move(node));
  }

  // Attributes, indices and calls behind value.
  ExpressionPtr postfix(ExpressionPtr value) {
    while (peek().kind == Kind::kOperator) {
      if (skip_symbol(".")) {
        if (peek().kind == Kind::kInteger) {
          unknown(peek().line, "index behind a dot", peek().text);
        }
        std::string attribute = name();
        if (!is(Kind::kOperator, "(")) {
          value =
              make_of(Node::kAttribute, std::move(attribute), std::move(value));
          continue;
        }
        Made node = make(Node::kMethod);
        node->text = std::move(attribute);
        node->children.push_back(std::move(value));
        arguments(*node);
        value = done(std::move(node));
      } else if (skip_symbol("[")) {
        value = subscript(std::move(value));
      } else if (is(Kind::kOperator, "(")) {
        if (value->kind != Node::kName) {
          unknown(peek().line, "call of", "an expression");
        }
        Made node = make(Node::kCall);
        node->text = value->text;
        arguments(*node);
        value = done(std::move(node));
      } else {
        break;
      }
    }
    return value;
  }

  // Behind "[".
  ExpressionPtr subscript(ExpressionPtr value) {
    std::array<ExpressionPtr, 3> parts;
    std::size_t part = 0;
    while (!is(Kind::kOperator, "]")) {
      if (skip_symbol(":")) {
        if (++part == parts.size()) {
          corrupt("]");
        }
      } else if (parts[part] == nullptr) {
        parts[part] = ternary();
      } else {
        corrupt("]");
      }
    }
    take();
    if (part > 0) {
      return make_of(Node::kSlice,
                     "",
                     std::move(value),
                     std::move(parts[0]),
                     std::move(parts[1]),
                     std::move(parts[2]));
    }
    if (parts[0] == nullptr) {
      --at_;
      corrupt("an index");
    }
    return make_of(Node::kIndex, "", std::move(value), std::move(parts[0]));
  }

  // "(a, b, key=c)".
  void arguments(Expression& node) {
    expect_symbol("(");
    bool first = true;
    while (!skip_symbol(")")) {
      if (!first) {
        expect_symbol(",");
        if (skip_symbol(")")) {
          break;
        }
      }
      first = false;
      if (is(Kind::kOperator, "*") || is(Kind::kOperator, "**")) {
        unknown(peek().line, "argument", peek().text);
      }
      const bool named = peek().kind == Kind::kName &&
                         tokens_[at_ + 1].kind == Kind::kOperator &&
                         tokens_[at_ + 1].text == "=";
      if (named) {
        std::string key = name();
        take();
        node.named_arguments.emplace_back(std::move(key), ternary());
      } else if (node.named_arguments.empty()) {
        node.arguments.push_back(ternary());
      } else {
        corrupt("a named argument");
      }
    }
  }

  // "| name(...)" and "is name" behind value.
  ExpressionPtr filters(ExpressionPtr value) {
    while (true) {
      const int line = peek().line;
      if (skip_symbol("|")) {
        Made node = make(Node::kFilter);
        node->text = name();
        if (!is_filter(node->text)) {
          unknown(line, "filter", node->text);
        }
        node->children.push_back(std::move(value));
        if (is(Kind::kOperator, "(")) {
          arguments(*node);
        }
        value = done(std::move(node));
      } else if (skip_word("is")) {
        const bool negated = skip_word("not");
        std::string test = name();
        if (!is_test(test)) {
          unknown(line, "test", test);
        }
        value = make_of(Node::kTest, std::move(test), std::move(value));
        if (negated) {
          value = make_of(Node::kNot, "", std::move(value));
        }
      } else if (is(Kind::kOperator, "(") || is(Kind::kOperator, ".") ||
                 is(Kind::kOperator, "[")) {
        unknown(line, "expression behind a filter or test:", peek().text);
      } else {
        return value;
      }
    }
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int level_ = 0;
};

}  // namespace

Program parse(std::string_view source) {
  return Parser(tokenize(source)).program();
}

}  // namespace nibble::text::jinja
