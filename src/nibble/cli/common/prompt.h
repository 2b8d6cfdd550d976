#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "nibble/model/config.h"
#include "nibble/text/tokenizer/tokenizer.h"

namespace nibble::cli {

// Token ids of a text that stands at the beginning of a sequence. Adds what
// tokenizer.json says; some models rely on whoever runs them for the
// begin-of-text token, so it is added as well when tokenizer_config.json asks
// for it (add_bos_token) or the chat template begins conversations with it.
// directory: of the model. Errors as reading those files.
[[nodiscard]] std::vector<std::int32_t> encode_beginning(
    const text::Tokenizer& tokenizer,
    const std::filesystem::path& directory,
    const model::ModelConfig& config,
    std::string_view text);

}  // namespace nibble::cli
