#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "nibble/text/tokenizer/tokenizer.h"

namespace nibble::text {

// How a conversation is written for Llama 2, 3 or 4, whose own directories
// (tokenizer.model) carry no chat template.
struct LlamaChat {
  std::string_view source;  // a template
  // Tokens that end the assistant's turn.
  std::vector<std::string_view> stop_tokens;
};

// The chat of the generation that a tokenizer.model belongs to, told by its
// special tokens; nothing for other tokenizers.
// Source: docs/formats/tokenizer.md, "Chats of Llama".
[[nodiscard]] std::optional<LlamaChat> llama_chat(const Tokenizer& tokenizer);

}  // namespace nibble::text
