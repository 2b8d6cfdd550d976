// The long forms of durable_test.cc and determinism_test.cc.
#include "determinism.h"
#include "durable_fixture.h"

namespace nibble {
namespace {

TEST_F(Kills, ByTheHundredsChangeNoByte) {
  survive_kills(200);
}

TEST_F(Signals, ByTheDozensStopCleanly) {
  survive_signals(60);
}

TEST_F(Determinism, HoldsForEverySetting) {
  run_settings(1);
}

}  // namespace
}  // namespace nibble
