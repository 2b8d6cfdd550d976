#include "nibble/quant/core/name_regex.h"

#include <array>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace nibble::quant {
namespace {

constexpr std::size_t kMaxPatternBytes = 4096;
// A name has below 200 bytes and a sane pattern needs some thousand steps on
// it; (a+)+ and its like reach any number.
constexpr std::uint32_t kMaxSteps = 200'000;
constexpr std::uint32_t kMaxHeapKib = 4096;

std::string message_of(int error) {
  std::array<PCRE2_UCHAR8, 160> text{};
  pcre2_get_error_message_8(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct NameRegex::Compiled {
  explicit Compiled(pcre2_code_8* pattern)
      : code(pattern), limits(pcre2_match_context_create_8(nullptr)) {
    pcre2_set_match_limit_8(limits, kMaxSteps);
    pcre2_set_depth_limit_8(limits, kMaxSteps);
    pcre2_set_heap_limit_8(limits, kMaxHeapKib);
  }

  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  ~Compiled() {
    pcre2_match_context_free_8(limits);
    pcre2_code_free_8(code);
  }

  pcre2_code_8* code;
  pcre2_match_context_8* limits;
};

NameRegex::NameRegex(std::string_view pattern, ErrorCode blame)
    : pattern_(pattern), blame_(blame) {
  if (pattern.size() > kMaxPatternBytes) {
    fail(blame,
         "regular expression: found {} bytes, expected at most {}",
         pattern.size(),
         kMaxPatternBytes);
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code_8* code =
      pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(pattern.data()),
                      pattern.size(),
                      PCRE2_NEVER_UTF | PCRE2_NEVER_BACKSLASH_C,
                      &error,
                      &offset,
                      nullptr);
  if (code == nullptr) {
    fail(blame,
         "regular expression '{}': found at character {}: {}",
         printable(pattern),
         offset + 1,
         message_of(error));
  }
  compiled_ = std::make_shared<const Compiled>(code);
}

bool NameRegex::fits_whole(std::string_view name) const {
  return run(name, true);
}

bool NameRegex::fits_start(std::string_view name) const {
  return run(name, false);
}

bool NameRegex::run(std::string_view name, bool whole) const {
  // One pair of offsets is enough: only the answer counts. The match data is
  // not shared, so that threads need no lock.
  pcre2_match_data_8* data = pcre2_match_data_create_8(1, nullptr);
  const int result =
      pcre2_match_8(compiled_->code,
                    reinterpret_cast<PCRE2_SPTR8>(name.data()),
                    name.size(),
                    0,
                    PCRE2_ANCHORED | (whole ? PCRE2_ENDANCHORED : 0U),
                    data,
                    compiled_->limits);
  pcre2_match_data_free_8(data);
  if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
    fail_with_hint(blame_,
                   "simplify it: nested repetitions such as (a+)+ explode",
                   "regular expression '{}' on '{}': {}",
                   printable(pattern_),
                   printable(name),
                   message_of(result));
  }
  return result >= 0;
}

}  // namespace nibble::quant
