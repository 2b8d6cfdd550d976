#pragma once

#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>

#include "nibble/cli/session.h"
#include "nibble/text/generate.h"

namespace nibble::cli {

// Adds the options of how text is continued, which generate and chat share.
void add_sampling_options(CLI::App& command, text::GenerateOptions& options);

// Runs generate, showing text as it comes when show is set. Ctrl-C ends the
// text: interrupted becomes true and the result holds what was shown.
struct Continuation {
  text::GenerateResult result;
  bool interrupted = false;
};

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
