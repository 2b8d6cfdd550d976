#pragma once

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "program.h"

namespace nibble {

// A program that runs beside the test, which may signal it. Its standard input
// is a pipe. Killed, if it still runs, with the object.
class RunningProgram {
 public:
  RunningProgram(const std::string& program,
                 const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment = {});
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;
  ~RunningProgram();

  [[nodiscard]] pid_t id() const { return id_; }

  void signal(int number) const;
  void write_input(const std::string& text) const;
  void close_input();
  // Whether it has ended; its result is then kept for wait().
  [[nodiscard]] bool ended();
  // What it has printed on standard output so far.
  [[nodiscard]] std::string output() const;
  // Looks until condition holds or the program has ended; whether it held.
  bool until(const std::function<bool()>& condition);
  // Its end, however long it takes.
  ProgramResult wait();

 private:
  ScratchDirectory scratch_;
  pid_t id_ = -1;
  int input_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

// Whether a process has a handler of its own for a signal.
[[nodiscard]] bool handles_signal(pid_t process, int number);

}  // namespace nibble
