#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nibble::text::jinja {

struct Token {
  enum class Kind {
    kData,         // text outside tags, ready to print
    kOutputBegin,  // {{
    kOutputEnd,    // }}
    kBlockBegin,   // {%
    kBlockEnd,     // %}
    kName,
    kString,  // text: the value
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };

  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;
};

// The tokens of a template, ending with kEnd. Comments are gone; white space
// around tags is treated as Jinja does with trim_blocks and lstrip_blocks on.
// kCorruptData with the line for what is no template, kUnsupported for
// spellings that are not known here.
[[nodiscard]] std::vector<Token> tokenize(std::string_view source);

}  // namespace nibble::text::jinja
