#include "nibble/cli/screen/output.h"

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <string>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"

namespace nibble::cli {
namespace {

[[noreturn]] void fail_output() {
  if (errno == EPIPE) {
    throw ClosedPipe{};
  }
  fail_errno("cannot write", "standard output");
}

}  // namespace

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    fail_output();
  }
}

void print_json(const nlohmann::json& document) {
  print(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  print("\n");
}

void flush_output() {
  if (std::fflush(stdout) != 0) {
    fail_output();
  }
}

void print_error(std::string_view line) {
  // One call, so that lines of several threads do not mix. Nothing can be
  // done when standard error is closed.
  const std::string text = std::string(line) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

bool read_line(std::string& line) {
  return static_cast<bool>(std::getline(std::cin, line));
}

std::string read_input() {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const std::size_t got = std::fread(buffer, 1, sizeof buffer, stdin);
    text.append(buffer, got);
    if (got < sizeof buffer) {
      break;
    }
  }
  if (std::ferror(stdin) != 0) {
    fail_errno("cannot read", "standard input");
  }
  return text;
}

bool input_is_terminal() {
  return isatty(STDIN_FILENO) == 1;
}

bool output_is_terminal() {
  return isatty(STDOUT_FILENO) == 1;
}

bool error_is_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

}  // namespace nibble::cli
