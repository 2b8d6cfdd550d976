#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/cli/common/model_loader.h"
#include "nibble/cli/common/sampling.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/text/chat/chat_template.h"
#include "nibble/text/tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string model;
  std::optional<std::string> system;
  std::optional<std::string> message;
  text::GenerateOptions generate;
  LoadOptions loading;
  bool json = false;
};

// A model, and what was said so far.
class Conversation {
 public:
  explicit Conversation(const Options& options)
      : options_(options),
        generate_(options.generate),
        tokenizer_(text::load_tokenizer(model_directory(options.model))),
        template_(text::ChatTemplate::load(model_directory(options.model),
                                           &tokenizer_)),
        loaded_(load_for_running(options.model, options.loading)) {
    if (!generate_.ignore_eos) {
      for (const std::string& token : template_.stop_tokens()) {
        if (const auto id = tokenizer_.token_to_id(token)) {
          generate_.stop_ids.push_back(*id);
        }
      }
    }
    if (options.system) {
      messages_.push_back({"system", *options.system});
    }
  }

  // Answers message; shows the answer as it comes unless JSON was asked for.
  Continuation answer(const std::string& message) {
    messages_.push_back({"user", message});
    // The template writes the special tokens itself.
    const std::vector<std::int32_t> prompt = tokenizer_.encode_template(
        template_.render(messages_, /*add_generation_prompt=*/true));
    Continuation continuation = continue_text(
        *loaded_.model, tokenizer_, prompt, generate_, !options_.json);
    messages_.push_back({"assistant", continuation.result.text});
    return continuation;
  }

 private:
  const Options& options_;
  text::GenerateOptions generate_;
  text::Tokenizer tokenizer_;
  text::ChatTemplate template_;
  LoadedModel loaded_;
  std::vector<text::Message> messages_;
};

int answer_once(Conversation& conversation,
                const Options& options,
                const Session& session) {
  const Continuation continuation = conversation.answer(*options.message);
  if (continuation.interrupted) {
    fail(ErrorCode::kInterrupted, "interrupted");
  }
  if (options.json) {
    print_json(to_json(continuation.result));
  }
  print_figures(session, continuation.result);
  return kDone;
}

// A message a line until the input ends. Ctrl-C ends an answer; at the prompt
// it ends the program.
int converse(Conversation& conversation, const Session& session) {
  const bool terminal = input_is_terminal() && output_is_terminal();
  if (terminal && !session.quiet) {
    print_error("One message a line; Ctrl-C stops an answer, Ctrl-D ends.");
  }
  std::string line;
  for (;;) {
    if (terminal) {
      print("> ");
      flush_output();
    }
    if (!read_line(line)) {
      break;
    }
    if (line.find_first_not_of(" \t\r") != std::string::npos) {
      print_figures(session, conversation.answer(line).result);
    }
  }
  if (terminal) {
    print("\n");
  }
  return kDone;
}

int chat(Options& options, const Session& session) {
  if (options.json && !options.message) {
    fail_with_hint(ErrorCode::kInvalidArgument,
                   "one JSON document is one answer: give --message TEXT",
                   "chat: found --json without --message");
  }
  resolve_to_run(options.model, options.loading, session);
  Conversation conversation(options);
  return options.message ? answer_once(conversation, options, session)
                         : converse(conversation, session);
}

}  // namespace

void add_chat(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command = add_command(
      app,
      session,
      "chat",
      "Answers messages from the terminal or standard input, or one message",
      "nibble chat models/fable-moe --message 'Continue the story: The fox"
      " sat down by the river.'",
      [options](Session& now) { return chat(*options, now); });
  command.add_option("model", options->model, kModelHelp)
      ->required()
      ->type_name("MODEL");
  command.add_option("--system", options->system, "System message")
      ->type_name("TEXT");
  command
      .add_option(
          "--message", options->message, "Answer this message alone and end")
      ->type_name("TEXT");
  add_sampling_options(command, options->generate);
  add_load_options(command, options->loading);
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
