#include "nibble/cli/screen/exit_code.h"

namespace nibble::cli {

ExitCode exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kOverBudget:
      return kWrongUse;
    case ErrorCode::kCorruptData:
    case ErrorCode::kUnsupported:
    case ErrorCode::kNotFound:
    case ErrorCode::kBadRecipe:
      return kBadInput;
    case ErrorCode::kCheckFailed:
      return kCheckFailed;
    case ErrorCode::kIo:
    case ErrorCode::kInterrupted:
    case ErrorCode::kDevice:
    case ErrorCode::kInternal:
      return kFailed;
  }
  return kFailed;
}

}  // namespace nibble::cli
