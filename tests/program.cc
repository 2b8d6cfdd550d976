#include "program.h"

#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace nibble {

namespace fs = std::filesystem;

namespace {

// Only for the child between fork and exec: no allocation, no exceptions.
void redirect(const char* path, int flags, int target) {
  const int descriptor = open(path, flags, 0600);
  if (descriptor < 0 || dup2(descriptor, target) < 0) {
    _exit(126);
  }
}

}  // namespace

ProgramResult run_program(const std::string& program,
                          const std::vector<std::string>& arguments,
                          const std::string& input,
                          const std::vector<std::string>& environment) {
  // Files, not pipes: no amount of output can block either side.
  const ScratchDirectory scratch;
  const std::string in = scratch.file("in");
  const std::string out = scratch.file("out");
  const std::string error = scratch.file("error");
  write_content(in, input);

  std::vector<const char*> argv = {program.c_str()};
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  argv.push_back(nullptr);
  // Never the store of whoever runs the tests.
  std::string home = "NIBBLE_HOME=" + scratch.file("store");
  const pid_t child = fork();
  if (child < 0) {
    throw std::runtime_error("fork failed");
  }
  if (child == 0) {
    redirect(in.c_str(), O_RDONLY, STDIN_FILENO);
    redirect(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
    redirect(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
    putenv(home.data());
    for (const std::string& entry : environment) {
      putenv(const_cast<char*>(entry.c_str()));  // NOLINT: POSIX's signature
    }
    if (chdir(NIBBLE_SOURCE_DIR) != 0) {
      _exit(126);
    }
    execv(program.c_str(), const_cast<char**>(argv.data()));  // NOLINT
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  ProgramResult result;
  result.peak_rss_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  result.status =
      WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = content_of(out);
  result.error = content_of(error);
  return result;
}

ProgramResult run_nibble(const std::vector<std::string>& arguments,
                         const std::string& input,
                         const std::vector<std::string>& environment) {
  return run_program(NIBBLE_PROGRAM, arguments, input, environment);
}

nlohmann::json run_nibble_json(std::vector<std::string> arguments,
                               const std::string& input) {
  arguments.emplace_back("--json");
  const ProgramResult result = run_nibble(arguments, input);
  if (result.status != 0) {
    throw std::runtime_error("nibble " + arguments.front() + ": status " +
                             std::to_string(result.status) + "\n" +
                             result.error);
  }
  return nlohmann::json::parse(result.out);
}

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw std::runtime_error("cannot read " + path.string());
  }
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_content(const fs::path& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary);
  out << content;
  if (!out.flush()) {
    throw std::runtime_error("cannot write " + path.string());
  }
}

std::string bundled(const std::string& name) {
  return std::string(NIBBLE_SOURCE_DIR) + "/models/" + name;
}

}  // namespace nibble
