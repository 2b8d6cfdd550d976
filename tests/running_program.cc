#include "running_program.h"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <stdexcept>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace nibble {
namespace {

void pause_a_little() {
  const timespec pause{0, 500'000};  // ns
  ::nanosleep(&pause, nullptr);
}

void fail_errno_as(const char* what) {
  throw std::runtime_error(what);
}

}  // namespace

RunningProgram::RunningProgram(const std::string& program,
                               const std::vector<std::string>& arguments,
                               const std::vector<std::string>& environment) {
  const std::string out = scratch_.file("out");
  const std::string error = scratch_.file("error");
  // The child may be killed before it makes them.
  write_content(out, "");
  write_content(error, "");
  std::vector<const char*> argv = {program.c_str()};
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  argv.push_back(nullptr);
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    fail_errno_as("no pipe");
  }
  id_ = ::fork();
  if (id_ < 0) {
    fail_errno_as("fork failed");
  }
  if (id_ == 0) {
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    if (::dup2(ends[0], STDIN_FILENO) < 0 ||
        ::dup2(::open(out.c_str(), flags, 0600), STDOUT_FILENO) < 0 ||
        ::dup2(::open(error.c_str(), flags, 0600), STDERR_FILENO) < 0 ||
        ::chdir(NIBBLE_SOURCE_DIR) != 0) {
      ::_exit(126);
    }
    for (const std::string& entry : environment) {
      ::putenv(const_cast<char*>(entry.c_str()));  // NOLINT: POSIX's signature
    }
    ::execv(program.c_str(), const_cast<char**>(argv.data()));  // NOLINT
    ::_exit(127);
  }
  ::close(ends[0]);
  input_ = ends[1];
}

RunningProgram::~RunningProgram() {
  if (!ended()) {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, &status_, 0);
  }
  close_input();
}

void RunningProgram::signal(int number) const {
  ::kill(id_, number);
}

void RunningProgram::write_input(const std::string& text) const {
  if (::write(input_, text.data(), text.size()) !=
      static_cast<ssize_t>(text.size())) {
    fail_errno_as("the program does not read");
  }
}

void RunningProgram::close_input() {
  if (input_ >= 0) {
    ::close(input_);
    input_ = -1;
  }
}

bool RunningProgram::ended() {
  if (!ended_) {
    ended_ = ::waitpid(id_, &status_, WNOHANG) == id_;
  }
  return ended_;
}

bool RunningProgram::until(const std::function<bool()>& condition) {
  while (!condition()) {
    if (ended()) {
      return false;
    }
    pause_a_little();
  }
  return true;
}

std::string RunningProgram::output() const {
  return content_of(scratch_.file("out"));
}

ProgramResult RunningProgram::wait() {
  close_input();
  if (!ended_) {
    ::waitpid(id_, &status_, 0);
    ended_ = true;
  }
  ProgramResult result;
  result.status =
      WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  result.out = content_of(scratch_.file("out"));
  result.error = content_of(scratch_.file("error"));
  return result;
}

bool handles_signal(pid_t process, int number) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigCgt:")) {
      const std::uint64_t caught = std::stoull(line.substr(7), nullptr, 16);
      return ((caught >> (number - 1)) & 1U) != 0;
    }
  }
  return false;
}

}  // namespace nibble
