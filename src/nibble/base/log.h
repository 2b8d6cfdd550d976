#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <fmt/core.h>

namespace nibble {

enum class LogLevel { kDebug, kInfo, kWarning };

// Where notes of the library go; nowhere until a program sets a sink. The
// sink may be called from several threads.
void set_log_sink(std::function<void(LogLevel, std::string_view)> sink);

// Hands one line to the sink.
void log_line(LogLevel level, std::string_view text);

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarning,
           fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace nibble
