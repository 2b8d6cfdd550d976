#include <cstdlib>

#include "expect_error.h"
#include "nibble/base/ranks/ranks.h"

namespace nibble {
namespace {

TEST(WithoutMpi, OneProcessIsAlone) {
  const std::atomic<bool> stop{false};
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  ::unsetenv("PMI_SIZE");
  EXPECT_EQ(join_ranks(stop)->count(), 1);
  ::setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  EXPECT_EQ(join_ranks(stop)->count(), 1);
}

TEST(WithoutMpi, SeveralAreRefused) {
  const std::atomic<bool> stop{false};
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    ::unsetenv("OMPI_COMM_WORLD_SIZE");
    ::setenv(name, "4", 1);
    expect_error(ErrorCode::kUnsupported,
                 "mpirun: found 4 processes, expected one: this nibble was "
                 "built without MPI",
                 [&] { static_cast<void>(join_ranks(stop)); });
    ::unsetenv(name);
  }
}

}  // namespace
}  // namespace nibble
