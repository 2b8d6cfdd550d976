#include "nibble/text/unicode/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <array>
#include <cstdint>

#include <pcre2.h>

#include "nibble/base/error.h"
#include "nibble/text/unicode/utf8.h"

namespace nibble::text {
namespace {

// A hostile pattern gives up after this many steps at one place (below a
// second); the published patterns need a few dozen a word.
constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::uint32_t kHeapLimitKiB = 64 * 1024;
constexpr std::size_t kJitStackBytes = 8 << 20;
constexpr std::size_t kPatternLimit = 1 << 16;

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};

using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using MatchData =
    std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using JitStack =
    std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// Constructs that PCRE2 accepts with another meaning than Oniguruma.
void refuse_other_dialect(std::string_view pattern) {
  static constexpr std::array<std::string_view, 4> kForeign = {
      "&&", "\\h", "\\H", "(?m"};
  for (const std::string_view construct : kForeign) {
    NIBBLE_CHECK(pattern.find(construct) == std::string_view::npos,
                 kUnsupported,
                 "pattern '{}': found {}, expected none of {}",
                 printable(pattern),
                 construct,
                 "&&, \\h, \\H, (?m");
  }
}

// U+180E is no longer white space in Unicode, but PCRE2's \s has it. U+200B is
// of the same category (Cf) and length, and nobody's white space.
std::string without_vowel_separator(std::string_view text) {
  static constexpr std::string_view kSeparator = "\xE1\xA0\x8E";
  std::string copy(text);
  for (std::size_t at = copy.find(kSeparator); at != std::string::npos;
       at = copy.find(kSeparator, at)) {
    copy.replace(at, kSeparator.size(), "\xE2\x80\x8B");
  }
  return copy;
}

}  // namespace

struct Regex::Compiled {
  std::string pattern;
  Code code;
};

Regex::Regex(std::string_view pattern) {
  NIBBLE_CHECK(pattern.size() <= kPatternLimit,
               kUnsupported,
               "pattern: found {} bytes, expected at most {}",
               pattern.size(),
               kPatternLimit);
  refuse_other_dialect(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // In Oniguruma's Ruby syntax ^ and $ always match at lines.
  Code code(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()),
      pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
      &error,
      &offset,
      nullptr));
  NIBBLE_CHECK(code != nullptr,
               kUnsupported,
               "pattern '{}': at byte {}: {}",
               printable(pattern),
               offset,
               error_text(error));
  // Without JIT (a processor that PCRE2 does not know) matching interprets.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  auto compiled = std::make_shared<Compiled>();
  compiled->pattern = pattern;
  compiled->code = std::move(code);
  compiled_ = std::move(compiled);
}

std::vector<Range> Regex::find_all(std::string_view text) const {
  std::string copy;
  if (text.find("\xE1\xA0\x8E") != std::string_view::npos) {
    copy = without_vowel_separator(text);
    text = copy;
  }
  const MatchData data(
      pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  const JitStack stack(
      pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr));
  NIBBLE_CHECK(data != nullptr && context != nullptr && stack != nullptr,
               kOverBudget,
               "pattern matching: out of memory");
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKiB);
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());

  std::vector<Range> matches;
  std::size_t from = 0;
  std::size_t last_end = std::string_view::npos;
  while (from <= text.size()) {
    const int found =
        pcre2_match(compiled_->code.get(),
                    reinterpret_cast<PCRE2_SPTR>(text.data()),
                    text.size(),
                    from,
                    // The caller's text is valid: checking it again for each
                    // match would make the loop quadratic.
                    PCRE2_NO_UTF_CHECK,
                    data.get(),
                    context.get());
    if (found == PCRE2_ERROR_NOMATCH) {
      break;
    }
    NIBBLE_CHECK(found >= 0,
                 kUnsupported,
                 "pattern '{}': stopped at byte {} of a text: {}",
                 printable(compiled_->pattern),
                 from,
                 error_text(found));
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    // \K in a lookahead could put the start behind the end.
    NIBBLE_CHECK(ends[0] <= ends[1] && ends[0] >= from,
                 kUnsupported,
                 "pattern '{}': found a match outside its place (\\K?)",
                 printable(compiled_->pattern));
    const Range match{ends[0], ends[1]};
    const bool empty = match.begin == match.end;
    // An empty match right behind the previous one counts as none.
    if (!empty || match.begin != last_end) {
      matches.push_back(match);
      last_end = match.end;
    }
    from = match.end;
    if (empty) {
      from += from < text.size() ? utf8_length(text[from]) : 1;
    }
  }
  return matches;
}

}  // namespace nibble::text
