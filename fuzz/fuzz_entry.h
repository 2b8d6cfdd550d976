#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

// What every fuzzer defines: the parser under test fed with these bytes. It
// may throw nothing; nibble::Error is caught inside. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

// Ends the process when a property of the parser does not hold: the fuzzer
// then keeps the input.
inline void fuzz_require(bool condition) {
  if (!condition) {
    std::abort();
  }
}
