#include "nibble/cli/common/sampling.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/cli/common/interrupt.h"
#include "nibble/cli/screen/output.h"

namespace nibble::cli {
namespace {

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

}  // namespace

void add_sampling_options(CLI::App& command, text::GenerateOptions& options) {
  text::SamplingOptions& sampling = options.sampling;
  constexpr double kAny = 1e9;
  command.add_option("--max-tokens", options.max_tokens, "Tokens at most")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->type_name("N");
  command
      .add_option("--temperature",
                  sampling.temperature,
                  "0: always the likeliest token")
      ->capture_default_str()
      ->check(CLI::Range(0.0, kAny))
      ->type_name("T");
  command.add_option("--top-k", sampling.top_k, "Only the K likeliest; 0: all")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
      ->type_name("K");
  command
      .add_option("--top-p",
                  sampling.top_p,
                  "Only the likeliest with this much probability together")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("P");
  command
      .add_option("--min-p",
                  sampling.min_p,
                  "Only tokens with this share of the likeliest's probability")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("P");
  command
      .add_option("--repetition-penalty",
                  sampling.repetition_penalty,
                  "Above 1: tokens that occurred become less likely")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, kAny))
      ->type_name("R");
  command.add_option("--seed", sampling.seed, "Of the random choices")
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("--stop",
                  options.stop,
                  "End before this text; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command.add_flag(
      "--ignore-eos", options.ignore_eos, "Go on after the model's own end");
}

Continuation continue_text(const model::Transformer& model,
                           const text::Tokenizer& tokenizer,
                           std::span<const std::int32_t> prompt,
                           const text::GenerateOptions& options,
                           bool show) {
  const InterruptScope scope;
  Continuation continuation;
  std::string shown;
  try {
    continuation.result = text::generate(
        model, tokenizer, prompt, options, [&](std::string_view portion) {
          shown += portion;
          if (show) {
            print(portion);
            flush_output();
          }
          if (scope.interrupted()) {
            throw Error(ErrorCode::kInterrupted, "interrupted");
          }
        });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) {
      throw;
    }
    continuation.interrupted = true;
    continuation.result.text = shown;
  }
  if (show) {
    print("\n");
    flush_output();
  }
  return continuation;
}

nlohmann::json to_json(const text::GenerateResult& result) {
  return {{"text", result.text},
          {"ids", result.ids},
          {"prompt_tokens", result.prompt_tokens},
          {"generated_tokens", result.generated_tokens},
          {"prompt_tokens_per_second",
           rate(result.prompt_tokens, result.prompt_seconds)},
          {"generated_tokens_per_second",
           rate(result.generated_tokens, result.generated_seconds)},
          {"stop_reason", text::to_string(result.stop_reason)}};
}

void print_figures(const Session& session, const text::GenerateResult& result) {
  if (session.quiet) {
    return;
  }
  print_error(fmt::format(
      "prompt {} tokens, {:.0f} tokens/s; generated {} tokens, {:.0f} "
      "tokens/s; end: {}",
      result.prompt_tokens,
      rate(result.prompt_tokens, result.prompt_seconds),
      result.generated_tokens,
      rate(result.generated_tokens, result.generated_seconds),
      text::to_string(result.stop_reason)));
}

}  // namespace nibble::cli
