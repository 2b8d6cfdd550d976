#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace nibble {

// What kind of failure an Error is. The command line maps each to an exit
// status (docs/exit-codes.md): 1 failed, 2 wrong use, 3 input refused, 4 check.
enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something impossible        (2)
  kOverBudget,       // the memory limit is too small for the work       (2)
  kCorruptData,      // a file's content contradicts itself or its form  (3)
  kUnsupported,      // well-formed, but nothing here can handle it      (3)
  kNotFound,         // a file, tensor or name that should exist does not(3)
  kBadRecipe,        // the recipe is wrong, alone or for this model     (3)
  kCheckFailed,      // a verification did not hold                      (4)
  kIo,               // the operating system refused an operation        (1)
  kInterrupted,      // stopped by the user                              (1)
  kDevice,           // an accelerator failed                            (1)
  kInternal,         // a bug                                            (1)
};

// The one exception type of the library. what() gives WHAT: WHERE: found X,
// expected Y; hint() says what to do about it, or is empty.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::string hint = {})
      : std::runtime_error(message), code_(code), hint_(std::move(hint)) {}

  [[nodiscard]] ErrorCode code() const { return code_; }

  [[nodiscard]] const std::string& hint() const { return hint_; }

 private:
  ErrorCode code_;
  std::string hint_;
};

// Throws Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code,
                       fmt::format_string<Args...> format,
                       Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// As fail, with a second line that says what to do.
template <typename... Args>
[[noreturn]] void fail_with_hint(ErrorCode code,
                                 std::string_view hint,
                                 fmt::format_string<Args...> format,
                                 Args&&... args) {
  throw Error(code,
              fmt::format(format, std::forward<Args>(args)...),
              std::string(hint));
}

// Runs step and prefixes "where: " to the message of any Error it throws.
template <typename Step>
decltype(auto) with_context(std::string_view where, Step&& step) {
  try {
    return std::forward<Step>(step)();
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("{}: {}", where, error.what()),
                error.hint());
  }
}

// Throws kIo with the text of errno: "what: path: No space left on device".
[[noreturn]] void fail_errno(std::string_view what, std::string_view path);

// Text from a file made safe to print: control and non-UTF-8 bytes escaped,
// cut at 120 bytes.
std::string printable(std::string_view text);

}  // namespace nibble

// Throws Error{code, ...} unless condition holds.
#define NIBBLE_CHECK(condition, code, ...)                \
  do {                                                    \
    if (!(condition)) {                                   \
      ::nibble::fail(::nibble::ErrorCode::code, __VA_ARGS__); \
    }                                                     \
  } while (false)

// A bug if it fails; compiled in dev and sanitizer builds only.
#ifdef NIBBLE_CHECKED
#define NIBBLE_ASSERT(condition)                                    \
  do {                                                              \
    if (!(condition)) {                                             \
      ::nibble::fail(::nibble::ErrorCode::kInternal,                \
                     "{}:{}: broken assumption: {}",                \
                     __FILE__,                                      \
                     __LINE__,                                      \
                     #condition);                                   \
    }                                                               \
  } while (false)
#else
#define NIBBLE_ASSERT(condition) static_cast<void>(0)
#endif
