#pragma once

#include "nibble/base/error.h"

namespace nibble::cli {

// Status of the process; a promise to scripts (docs/exit-codes.md).
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,       // I/O, interrupted, out of space, a bug
  kWrongUse = 2,     // the command line asks for something impossible
  kBadInput = 3,     // a file, model or recipe is refused
  kCheckFailed = 4,  // a verification did not hold
};

[[nodiscard]] ExitCode exit_code(ErrorCode code);

}  // namespace nibble::cli
