#include "nibble/text/generate.h"

#include <algorithm>
#include <chrono>

#include "nibble/base/error.h"
#include "nibble/text/stop_filter.h"

namespace nibble::text {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool contains(const std::vector<std::int32_t>& ids, std::int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

void check_request(const LanguageModel& model,
                   std::span<const std::int32_t> prompt,
                   const GenerateOptions& options) {
  NIBBLE_CHECK(!prompt.empty(),
               kInvalidArgument,
               "prompt: found no tokens, expected at least one");
  NIBBLE_CHECK(options.max_tokens >= 1,
               kInvalidArgument,
               "max-tokens: found {}, expected at least 1",
               options.max_tokens);
  NIBBLE_CHECK(options.prompt_chunk >= 1,
               kInvalidArgument,
               "prompt chunk: found {}, expected at least 1",
               options.prompt_chunk);
  if (prompt.size() > static_cast<std::size_t>(model.max_positions)) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "shorten the prompt",
                   "prompt: found {} tokens, expected at most the model's {}",
                   prompt.size(),
                   model.max_positions);
  }
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    NIBBLE_CHECK(prompt[i] >= 0 && prompt[i] < model.vocabulary,
                 kInvalidArgument,
                 "prompt: found id {} at {}, expected 0 to {}",
                 prompt[i],
                 i,
                 model.vocabulary - 1);
  }
}

// Text of a growing sequence: ids in, final text out to the caller.
class Output {
 public:
  Output(const Tokenizer& tokenizer,
         const std::vector<std::string>& stops,
         OnText on_text)
      : stream_(tokenizer.stream(/*skip_special=*/true, /*continues=*/true)),
        filter_(stops),
        on_text_(on_text) {}

  // False when a stop string is complete.
  bool push(std::int32_t id) {
    emit(filter_.push(stream_.push(id)));
    return !filter_.stopped();
  }

  // False when what was held back completes a stop string.
  bool finish() {
    emit(filter_.push(stream_.finish()));
    if (filter_.stopped()) {
      return false;
    }
    emit(filter_.finish());
    return true;
  }

  std::string& text() { return text_; }

 private:
  void emit(const std::string& piece) {
    if (!piece.empty()) {
      text_ += piece;
      on_text_(piece);
    }
  }

  TokenStream stream_;
  StopFilter filter_;
  OnText on_text_;
  std::string text_;
};

void run_prompt(const LanguageModel& model,
                std::span<const std::int32_t> prompt,
                std::int64_t chunk,
                std::span<float> logits) {
  while (!prompt.empty()) {
    const std::size_t count =
        std::min(prompt.size(), static_cast<std::size_t>(chunk));
    model.run(prompt.first(count), logits);
    prompt = prompt.subspan(count);
  }
}

}  // namespace

std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::kEos:
      return "eos";
    case StopReason::kLength:
      return "length";
    case StopReason::kStop:
      return "stop";
    case StopReason::kContext:
      return "context";
  }
  fail(ErrorCode::kInternal, "stop reason {}", static_cast<int>(reason));
}

GenerateResult generate(const LanguageModel& model,
                        const Tokenizer& tokenizer,
                        std::span<const std::int32_t> prompt,
                        const GenerateOptions& options,
                        OnText on_text) {
  check_request(model, prompt, options);
  Sampler sampler(options.sampling);
  Output output(tokenizer, options.stop, on_text);
  std::vector<float> logits(static_cast<std::size_t>(model.vocabulary));

  GenerateResult result;
  result.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  const Clock::time_point start = Clock::now();
  run_prompt(model, prompt, options.prompt_chunk, logits);
  result.prompt_seconds = seconds_since(start);

  const Clock::time_point first = Clock::now();
  std::vector<std::int32_t> history(prompt.begin(), prompt.end());
  while (true) {
    const std::int32_t id = sampler.sample(logits, history);
    history.push_back(id);
    result.ids.push_back(id);
    if (!options.ignore_eos && contains(model.eos, id)) {
      result.stop_reason = StopReason::kEos;
      break;
    }
    if (contains(options.stop_ids, id) || !output.push(id)) {
      result.stop_reason = StopReason::kStop;
      break;
    }
    if (static_cast<std::int64_t>(result.ids.size()) == options.max_tokens) {
      result.stop_reason = StopReason::kLength;
      break;
    }
    // The last token has not been run: it needs one more position.
    if (static_cast<std::int64_t>(history.size()) > model.max_positions) {
      result.stop_reason = StopReason::kContext;
      break;
    }
    model.run({&id, 1}, logits);
  }
  if (!output.finish()) {
    result.stop_reason = StopReason::kStop;
  }
  result.generated_seconds = seconds_since(first);
  result.generated_tokens = static_cast<std::int64_t>(result.ids.size());
  result.text = std::move(output.text());
  return result;
}

GenerateResult generate(const model::Transformer& model,
                        const Tokenizer& tokenizer,
                        std::span<const std::int32_t> prompt,
                        const GenerateOptions& options,
                        OnText on_text) {
  model::KvCache cache = model.make_cache();
  const auto run = [&](std::span<const std::int32_t> ids,
                       std::span<float> logits) {
    const Tensor last =
        model.forward(ids, cache, model::Transformer::Logits::kLast);
    const auto values = last.view().as<float>();  // (1, vocabulary)
    std::copy(values.begin(), values.end(), logits.begin());
  };
  return generate(LanguageModel{model.config().vocabulary,
                                model.config().max_positions,
                                model.config().eos_tokens,
                                run},
                  tokenizer,
                  prompt,
                  options,
                  on_text);
}

}  // namespace nibble::text
