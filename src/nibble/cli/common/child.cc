#include "nibble/cli/common/child.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"

namespace nibble::cli {
namespace {

nlohmann::json result_of(FunctionRef<nlohmann::json()> work) {
  try {
    return {{"result", work()}};
  } catch (const Error& error) {
    return {{"code", static_cast<int>(error.code())},
            {"what", error.what()},
            {"hint", error.hint()}};
  } catch (const std::exception& error) {
    return {{"code", static_cast<int>(ErrorCode::kInternal)},
            {"what", error.what()},
            {"hint", ""}};
  }
}

// The child's whole life. Ctrl-C is the parent's to explain.
[[noreturn]] void live_and_die(FunctionRef<nlohmann::json()> work, int pipe) {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  const std::string text = result_of(work).dump();
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t count =
        write(pipe, text.data() + written, text.size() - written);
    if (count < 0) {
      _exit(1);
    }
    written += static_cast<std::size_t>(count);
  }
  // Not exit(): the parent's buffers and destructors are not ours.
  _exit(0);
}

std::string read_all(int pipe) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t count = read(pipe, buffer.data(), buffer.size());
    if (count > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return text;
    }
  }
}

}  // namespace

nlohmann::json run_in_child(FunctionRef<nlohmann::json()> work) {
  std::array<int, 2> pipe_ends{};
  if (pipe(pipe_ends.data()) != 0) {
    fail_errno("cannot make a pipe", "child process");
  }
  // What is buffered here must not be printed twice.
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    fail_errno("cannot start", "child process");
  }
  if (child == 0) {
    close(pipe_ends[0]);
    live_and_die(work, pipe_ends[1]);
  }
  close(pipe_ends[1]);
  const std::string text = read_all(pipe_ends[0]);
  close(pipe_ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    fail_with_hint(ErrorCode::kIo,
                   "out of memory? see dmesg",
                   "child process: found signal {}, expected a result",
                   WTERMSIG(status));
  }
  const nlohmann::json answer = nlohmann::json::parse(text, nullptr, false);
  NIBBLE_CHECK(answer.is_object(),
               kInternal,
               "child process: found status {} and no result",
               status);
  if (answer.contains("code")) {
    throw Error(static_cast<ErrorCode>(answer["code"].get<int>()),
                answer["what"].get<std::string>(),
                answer["hint"].get<std::string>());
  }
  return answer.at("result");
}

}  // namespace nibble::cli
