#pragma once

#include <cstdint>
#include <span>

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>

#include "nibble/cli/screen/session.h"
#include "nibble/text/generate.h"

namespace nibble::cli {

// Adds the options of how text is continued, which generate and chat share.
void add_sampling_options(CLI::App& command, text::GenerateOptions& options);

struct Continuation {
  text::GenerateResult result;
  // Ctrl-C ended the text; of result only the text is filled.
  bool interrupted = false;
};

// Runs generate, showing text as it comes when show is set. The first Ctrl-C
// meanwhile ends the text, not the program.
[[nodiscard]] Continuation continue_text(const model::Transformer& model,
                                         const text::Tokenizer& tokenizer,
                                         std::span<const std::int32_t> prompt,
                                         const text::GenerateOptions& options,
                                         bool show);

// The JSON document of generate and chat.
[[nodiscard]] nlohmann::json to_json(const text::GenerateResult& result);

// One line of figures on standard error, unless the session is quiet.
void print_figures(const Session& session, const text::GenerateResult& result);

}  // namespace nibble::cli
