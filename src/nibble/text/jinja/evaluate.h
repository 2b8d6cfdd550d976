#pragma once

#include <string>

#include "nibble/text/jinja/program.h"
#include "nibble/text/jinja/value.h"

namespace nibble::text::jinja {

// The text that program prints with these variables. kUnsupported for what is
// not known here and when a limit of limits.h is reached, kInvalidArgument
// where Jinja would raise; both with the line.
[[nodiscard]] std::string evaluate(const Program& program,
                                   const Dict& variables);

}  // namespace nibble::text::jinja
