#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/base/function_ref.h"
#include "nibble/model/transformer.h"
#include "nibble/text/sampler.h"
#include "nibble/text/tokenizer/tokenizer.h"

namespace nibble::text {

struct GenerateOptions {
  std::int64_t max_tokens = 256;
  SamplingOptions sampling;
  std::vector<std::string> stop;       // ends before any of these texts
  std::vector<std::int32_t> stop_ids;  // ends with any of these tokens
  bool ignore_eos = false;  // end tokens of the model do not end the text
  std::int64_t prompt_chunk = 512;  // prompt tokens that run at once
};

enum class StopReason {
  kEos,      // an end token of the model
  kLength,   // max_tokens
  kStop,     // a stop string or stop id
  kContext,  // the model has no further position
};

// "eos", "length", "stop" or "context".
[[nodiscard]] std::string_view to_string(StopReason reason);

struct GenerateResult {
  std::vector<std::int32_t> ids;  // generated, the token that ended included
  // Their text without special tokens, as it goes on behind the prompt, cut
  // before a stop string.
  std::string text;
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  double prompt_seconds = 0;     // until the first token could be chosen
  double generated_seconds = 0;  // from there on
  StopReason stop_reason = StopReason::kLength;
};

// Text that is final, in portions of complete UTF-8, as it appears.
using OnText = FunctionRef<void(std::string_view)>;

// Continues prompt. kInvalidArgument for an empty prompt, an id outside the
// vocabulary, a prompt longer than the model's positions, or an option out of
// range. An exception from on_text ends the run and passes through.
[[nodiscard]] GenerateResult generate(const model::Transformer& model,
                                      const Tokenizer& tokenizer,
                                      std::span<const std::int32_t> prompt,
                                      const GenerateOptions& options,
                                      OnText on_text);

// What the loop needs to know of a model.
struct LanguageModel {
  std::int64_t vocabulary = 0;
  std::int64_t max_positions = 0;
  std::vector<std::int32_t> eos;
  // Runs ids behind what was run before and writes the logits of the last to
  // logits (vocabulary).
  FunctionRef<void(std::span<const std::int32_t> ids, std::span<float> logits)>
      run;
};

// The loop of generate() over any model.
[[nodiscard]] GenerateResult generate(const LanguageModel& model,
                                      const Tokenizer& tokenizer,
                                      std::span<const std::int32_t> prompt,
                                      const GenerateOptions& options,
                                      OnText on_text);

}  // namespace nibble::text
