// One source and recipe, the same bytes: whatever the threads, the memory
// limit, the set of instructions, the files of the source, interruptions, and
// the number of processes.
#include "determinism.h"

namespace nibble {
namespace {

// All of them: durable_slow_test.cc.
TEST_F(Determinism, HoldsForASampleOfSettings) {
  run_settings(7);
}

}  // namespace
}  // namespace nibble
