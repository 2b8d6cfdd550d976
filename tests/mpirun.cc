#include "mpirun.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "program.h"

namespace nibble {

std::string mpirun_missing() {
#ifndef NIBBLE_MPI
  return "nibble was built without MPI";
#else
  static const bool found =
      run_program("/usr/bin/env", {"mpirun", "--version"}).status == 0;
  return found ? "" : "mpirun is not installed";
#endif
}

std::vector<std::string> mpirun_line(
    int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> line = {"OMPI_ALLOW_RUN_AS_ROOT=1",
                                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                   "mpirun",
                                   "--oversubscribe",
                                   "--bind-to",
                                   "none",
                                   "-np",
                                   std::to_string(ranks),
                                   NIBBLE_PROGRAM};
  line.insert(line.end(), arguments.begin(), arguments.end());
  return line;
}

std::map<int, pid_t> ranks_of(pid_t mpirun) {
  const std::string id = std::to_string(mpirun);
  std::ifstream children("/proc/" + id + "/task/" + id + "/children");
  std::map<int, pid_t> ranks;
  for (pid_t child = 0; children >> child;) {
    std::ifstream file("/proc/" + std::to_string(child) + "/environ");
    const std::string environment((std::istreambuf_iterator<char>(file)),
                                  std::istreambuf_iterator<char>());
    const std::string key = "OMPI_COMM_WORLD_RANK=";
    const std::size_t at = environment.find(key);
    if (at != std::string::npos) {
      ranks[std::atoi(environment.c_str() + at + key.size())] = child;
    }
  }
  return ranks;
}

}  // namespace nibble
