#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/base/files/json.h"
#include "nibble/cli/common/model_loader.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/text/chat/chat_template.h"

namespace nibble::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string source;
  std::string messages;
  std::string tools;
  std::vector<std::string> set;
  bool no_generation_prompt = false;
  bool json = false;
};

// Keeps the order of keys, which templates that print objects show.
Json read_ordered(const std::string& path) {
  const std::string text = read_text_file(path);
  // For its errors: place, depth, encoding.
  static_cast<void>(parse_json(text, path));
  return Json::parse(text);
}

// A value of --set: JSON where it is JSON, else the text itself.
Json value_of(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json(text) : value;
}

Json variables_of(const Options& options) {
  Json variables = Json::object();
  if (!options.tools.empty()) {
    variables["tools"] = read_ordered(options.tools);
  }
  for (const std::string& entry : options.set) {
    const std::size_t equals = entry.find('=');
    NIBBLE_CHECK(equals != std::string::npos && equals > 0,
                 kInvalidArgument,
                 "template: --set: found {}, expected NAME=VALUE",
                 printable(entry));
    variables[entry.substr(0, equals)] = value_of(entry.substr(equals + 1));
  }
  return variables;
}

text::ChatTemplate open_template(const std::string& source) {
  if (std::filesystem::is_regular_file(source)) {
    return text::ChatTemplate(read_text_file(source), Json::object());
  }
  return text::ChatTemplate::load(source);
}

int render(const Options& options) {
  const text::ChatTemplate chat = open_template(options.source);
  const Json messages = read_ordered(options.messages);
  NIBBLE_CHECK(messages.is_array(),
               kCorruptData,
               "{}: found {}, expected an array of messages",
               options.messages,
               messages.type_name());
  const std::string text = chat.render(
      messages, !options.no_generation_prompt, variables_of(options));
  if (options.json) {
    print_json({{"text", text}});
  } else {
    print(text);
  }
  return kDone;
}

}  // namespace

void add_template(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command = add_command(
      app,
      session,
      "template",
      "Prints a conversation as the model's chat template writes it",
      "nibble template models/fable-moe --messages messages.json",
      [options](Session&) {
        resolve(options->source);
        return render(*options);
      });
  command
      .add_option(
          "source", options->source, "Model directory or a template file")
      ->required()
      ->type_name("DIR|FILE");
  command
      .add_option("--messages",
                  options->messages,
                  "File: a JSON array of {\"role\", \"content\"}")
      ->required()
      ->type_name("FILE");
  command.add_option("--tools", options->tools, "File: JSON for the template")
      ->type_name("FILE");
  command.add_option("--set", options->set, "A further variable; repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command.add_flag("--no-generation-prompt",
                   options->no_generation_prompt,
                   "Do not open the assistant's turn");
  command.add_flag("--json", options->json, "One JSON document");
}

}  // namespace nibble::cli
