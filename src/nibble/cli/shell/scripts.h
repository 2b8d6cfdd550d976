#pragma once

#include <string_view>

namespace nibble::cli {

// The completion script of a shell: "bash", "zsh" or "fish". Each asks
// `nibble complete -- WORD...` and shows what it prints.
[[nodiscard]] std::string_view completion_script(std::string_view shell);

}  // namespace nibble::cli
