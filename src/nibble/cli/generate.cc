#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/cli/common/ids_file.h"
#include "nibble/cli/common/model_loader.h"
#include "nibble/cli/common/prompt.h"
#include "nibble/cli/common/sampling.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/text/tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string model;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<std::string> ids;
  text::GenerateOptions generate;
  LoadOptions loading;
  bool json = false;
};

std::vector<std::int32_t> prompt_ids(const Options& options,
                                     const text::Tokenizer& tokenizer,
                                     const model::ModelConfig& config) {
  if (options.ids) {
    return read_ids(*options.ids, config.vocabulary);
  }
  return encode_beginning(
      tokenizer,
      model_directory(options.model),
      config,
      options.prompt ? *options.prompt : read_text_file(*options.prompt_file));
}

// Whether ids go in and out and no text is wanted.
bool is_textless(const Options& options) {
  return options.ids && options.generate.stop.empty() &&
         !text::has_tokenizer(model_directory(options.model));
}

int generate(Options& options, const Session& session) {
  require_one("generate",
              {{"--prompt", options.prompt.has_value()},
               {"--prompt-file", options.prompt_file.has_value()},
               {"--ids", options.ids.has_value()}});
  resolve_to_run(options.model, options.loading, session);
  const bool textless = is_textless(options);
  // Without tokens every id decodes to no text.
  const text::Tokenizer tokenizer =
      textless
          ? text::Tokenizer({{}, {}, {}, {{{"", 0}}, {}, {}}, true, {}, {}, {}})
          : text::load_tokenizer(model_directory(options.model));
  const LoadedModel loaded = load_for_running(options.model, options.loading);
  const std::vector<std::int32_t> prompt =
      prompt_ids(options, tokenizer, loaded.model->config());
  const Continuation continuation = continue_text(
      *loaded.model, tokenizer, prompt, options.generate, !options.json);
  if (continuation.interrupted) {
    fail(ErrorCode::kInterrupted, "interrupted");
  }
  if (options.json) {
    print_json(to_json(continuation.result));
  } else if (textless) {
    print_json(continuation.result.ids);
  }
  print_figures(session, continuation.result);
  return kDone;
}

}  // namespace

void add_generate(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      add_command(app,
                  session,
                  "generate",
                  "Continues a text",
                  "nibble generate models/fable-moe --prompt 'Once upon a time'"
                  " --max-tokens 60",
                  [options](Session& now) { return generate(*options, now); });
  command.add_option("model", options->model, kModelHelp)
      ->required()
      ->type_name("MODEL");
  command.add_option("--prompt", options->prompt, "Text to continue")
      ->type_name("TEXT");
  command
      .add_option("--prompt-file", options->prompt_file, "File that holds it")
      ->type_name("FILE");
  command
      .add_option(
          "--ids",
          options->ids,
          "Instead: a JSON array of token ids; the model needs no tokenizer")
      ->type_name("FILE");
  add_sampling_options(command, options->generate);
  add_load_options(command, options->loading);
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
