#include "nibble/base/ranks/started_together.h"

#include <cstdlib>
#include <initializer_list>

namespace nibble {

int started_together() {
  // Open MPI's mpirun; MPICH's, Intel's and Slurm's PMI.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* value = std::getenv(name)) {
      return std::atoi(value);
    }
  }
  return 0;
}

bool started_by_launcher() {
  return started_together() > 0 || std::getenv("PMIX_RANK") != nullptr;
}

}  // namespace nibble
