#include "nibble/text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "nibble/base/error.h"
#include "nibble/text/jinja/limits.h"
#include "nibble/text/jinja/text_tools.h"
#include "nibble/text/unicode/utf8.h"

namespace nibble::text::jinja {
namespace {

using Kind = Token::Kind;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_name(char c) {
  return is_name_start(c) || is_digit(c);
}

// Line ends as \n, and without the last one: what Jinja does on loading.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') {
        ++i;
      }
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) {
    out.pop_back();
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source)
      : source_(std::move(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const std::size_t tag = next_tag();
      data(tag);
      if (tag == std::string_view::npos) {
        break;
      }
      const char kind = text_[tag + 1];
      advance(2);
      if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) {
        advance(1);
      }
      if (kind == '#') {
        comment();
      } else {
        add(kind == '{' ? Kind::kOutputBegin : Kind::kBlockBegin, {});
        inside(kind == '{');
      }
    }
    add(Kind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  void add(Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  [[noreturn]] void refuse(ErrorCode code, std::string_view what) const {
    fail(code, "line {}: {}", line_, what);
  }

  void advance(std::size_t bytes) {
    const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(at_);
    line_ += static_cast<int>(
        std::count(begin, begin + static_cast<std::ptrdiff_t>(bytes), '\n'));
    at_ += bytes;
  }

  [[nodiscard]] bool starts(std::string_view what) const {
    return text_.substr(at_).starts_with(what);
  }

  [[nodiscard]] std::size_t next_tag() const {
    for (std::size_t i = text_.find('{', at_);
         i != std::string_view::npos && i + 1 < text_.size();
         i = text_.find('{', i + 1)) {
      if (std::string_view("{%#").find(text_[i + 1]) !=
          std::string_view::npos) {
        return i;
      }
    }
    return std::string_view::npos;
  }

  // The text up to the tag; a block or comment that stands alone in front of
  // its line takes the line's indentation away (lstrip_blocks).
  void data(std::size_t tag) {
    std::string_view data = text_.substr(at_, tag - at_);
    const std::size_t bytes = std::min(tag, text_.size()) - at_;
    if (tag != std::string_view::npos) {
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
      if (sign == '-') {
        data = strip(data, Side::kRight);
      } else if (sign != '+' && text_[tag + 1] != '{') {
        const std::size_t line = data.rfind('\n') + 1;  // npos + 1 = 0
        if ((line > 0 || line_starting_) &&
            strip(data.substr(line), Side::kLeft).empty()) {
          data = data.substr(0, line);
        }
      }
    }
    if (!data.empty()) {
      add(Kind::kData, std::string(data));
    }
    advance(bytes);
  }

  // Behind the end of a tag: "-" takes all white space along, blocks and
  // comments one line end (trim_blocks).
  void end_tag(char sign, bool trim_line) {
    std::size_t skipped = 0;
    if (sign == '-') {
      const std::string_view rest = text_.substr(at_);
      skipped = rest.size() - strip(rest, Side::kLeft).size();
    } else if (sign != '+' && trim_line && starts("\n")) {
      skipped = 1;
    }
    line_starting_ = skipped > 0 && text_[at_ + skipped - 1] == '\n';
    advance(skipped);
  }

  void comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) {
      refuse(ErrorCode::kCorruptData, "found a comment without #}");
    }
    const char sign = end > at_ ? text_[end - 1] : ' ';
    advance(end + 2 - at_);
    end_tag(sign, true);
  }

  // The tokens of a tag, up to its end.
  void inside(bool output) {
    const std::string_view close = output ? "}}" : "%}";
    std::string open;  // brackets: }} does not end the tag inside them
    while (true) {
      if (at_ >= text_.size()) {
        refuse(ErrorCode::kCorruptData, "found a tag without its end");
      }
      if (open.empty()) {
        const char sign = text_[at_];
        const bool sign_here = sign == '-' || (sign == '+' && !output);
        if (text_.substr(at_ + (sign_here ? 1 : 0)).starts_with(close)) {
          add(output ? Kind::kOutputEnd : Kind::kBlockEnd, {});
          advance(close.size() + (sign_here ? 1 : 0));
          end_tag(sign_here ? sign : ' ', !output);
          return;
        }
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = text_[at_];
    std::size_t behind = at_;
    if (is_python_space(next_code_point(text_, behind))) {
      advance(behind - at_);
    } else if (is_digit(c)) {
      number();
    } else if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < text_.size() && is_name(text_[end])) {
        ++end;
      }
      add(Kind::kName, std::string(text_.substr(at_, end - at_)));
      advance(end - at_);
    } else if (c == '\'' || c == '"') {
      string();
    } else {
      symbol(open);
    }
  }

  void number() {
    std::size_t end = at_;
    const auto digits = [&] {
      while (end < text_.size() && is_digit(text_[end])) {
        ++end;
      }
    };
    digits();
    bool real = false;
    if (end + 1 < text_.size() && text_[end] == '.' &&
        is_digit(text_[end + 1])) {
      real = true;
      ++end;
      digits();
    }
    if (end < text_.size() && is_name(text_[end])) {
      refuse(ErrorCode::kUnsupported,
             "found a number that is not plain decimal digits");
    }
    add(real ? Kind::kFloat : Kind::kInteger,
        std::string(text_.substr(at_, end - at_)));
    advance(end - at_);
  }

  void string() {
    const char quote = text_[at_];
    std::string value;
    std::size_t i = at_ + 1;
    while (i < text_.size() && text_[i] != quote) {
      if (text_[i] == '\\') {
        i = escape(i, value);
      } else {
        value += text_[i++];
      }
    }
    if (i >= text_.size()) {
      refuse(ErrorCode::kCorruptData, "found a string without its end");
    }
    add(Kind::kString, std::move(value));
    advance(i + 1 - at_);
  }

  // Python's escapes; an unknown one stands for itself with its backslash.
  // Returns the place behind it.
  std::size_t escape(std::size_t i, std::string& value) const {
    static constexpr std::string_view kNames = "\\'\"abfnrtv";
    static constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    if (i + 1 >= text_.size()) {
      refuse(ErrorCode::kCorruptData, "found a string without its end");
    }
    const char name = text_[i + 1];
    if (const auto at = kNames.find(name); at != std::string_view::npos) {
      value += kValues[at];
      return i + 2;
    }
    if (name == '\n') {
      return i + 2;
    }
    const std::size_t digits = name == 'x'   ? 2
                               : name == 'u' ? 4
                               : name == 'U' ? 8
                                             : 0;
    if (digits == 0) {
      if (is_digit(name) || name == 'N') {
        refuse(ErrorCode::kUnsupported,
               "found an octal or named escape in a string");
      }
      value += '\\';
      return i + 1;
    }
    char32_t code_point = 0;
    for (std::size_t k = i + 2; k < i + 2 + digits; ++k) {
      static constexpr std::string_view kHex = "0123456789abcdef";
      const auto digit = k < text_.size()
                             ? kHex.find(static_cast<char>(
                                   text_[k] | (is_digit(text_[k]) ? 0 : 0x20)))
                             : std::string_view::npos;
      if (digit == std::string_view::npos) {
        refuse(ErrorCode::kCorruptData, "found a broken \\ escape");
      }
      code_point = code_point << 4 | static_cast<char32_t>(digit);
    }
    if (code_point > 0x10FFFF ||
        (code_point >= 0xD800 && code_point <= 0xDFFF)) {
      refuse(ErrorCode::kUnsupported, "found an escape of no character");
    }
    append_utf8(code_point, value);
    return i + 2 + digits;
  }

  void symbol(std::string& open) {
    static constexpr std::array<std::string_view, 6> kDouble = {
        "//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
    for (const std::string_view text : kDouble) {
      if (starts(text)) {
        add(Kind::kOperator, std::string(text));
        advance(2);
        return;
      }
    }
    const char c = text_[at_];
    if (kSingle.find(c) == std::string_view::npos) {
      refuse(ErrorCode::kCorruptData,
             "found '" + printable(text_.substr(at_, 1)) +
                 "', expected an expression");
    }
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (!open.ends_with(c)) {
        refuse(ErrorCode::kCorruptData,
               std::string("found ") + c + " without its opening bracket");
      }
      open.pop_back();
    }
    add(Kind::kOperator, std::string(1, c));
    advance(1);
  }

  std::string source_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  // Nothing but a line end stands before at_.
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  NIBBLE_CHECK(source.size() <= kSourceBytes,
               kUnsupported,
               "found {} bytes, expected at most {}",
               source.size(),
               kSourceBytes);
  NIBBLE_CHECK(is_valid_utf8(source), kCorruptData, "found no valid UTF-8");
  return Lexer(normalized(source)).run();
}

}  // namespace nibble::text::jinja
