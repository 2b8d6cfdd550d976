#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nibble/base/error.h"
#include "nibble/base/files/json.h"
#include "nibble/cli/common/ids_file.h"
#include "nibble/cli/common/model_loader.h"
#include "nibble/cli/screen/exit_code.h"
#include "nibble/cli/screen/output.h"
#include "nibble/cli/screen/session.h"
#include "nibble/text/tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

struct Options {
  std::string model;
  std::optional<std::string> text;
  bool no_special = false;
  bool decode = false;
  bool lines = false;
  bool json = false;
};

// Models have rows beyond the tokens, so an id without a token is no error.
constexpr std::int64_t kAnyId = std::int64_t{1} << 31;

// Ids that a person or a program wrote: a JSON array, or numbers with blanks
// between.
std::vector<std::int32_t> parse_ids(std::string text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) {
    return {};
  }
  if (text[first] != '[') {
    const std::size_t last = text.find_last_not_of(" \t\r\n");
    std::string array;
    for (const char c : text.substr(first, last + 1 - first)) {
      const bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
      if (!blank) {
        array += c;
      } else if (array.back() != ',') {
        array += ',';
      }
    }
    text = "[" + array + "]";
  }
  return ids_of(parse_json(text, "token ids"), "token ids", kAnyId);
}

// One text or one list of ids, there or back.
struct Pair {
  std::string text;
  std::vector<std::int32_t> ids;
};

Pair convert(const Options& options,
             const text::Tokenizer& tokenizer,
             std::string input) {
  Pair pair;
  if (options.decode) {
    pair.ids = parse_ids(std::move(input));
    pair.text = tokenizer.decode(pair.ids, options.no_special);
  } else {
    pair.ids = tokenizer.encode(input, !options.no_special);
    pair.text = std::move(input);
  }
  return pair;
}

// A JSON string a line in, an array of ids a line out; or the reverse.
void convert_lines(const Options& options, const text::Tokenizer& tokenizer) {
  std::string line;
  for (int number = 1; read_line(line); ++number) {
    const std::string where = fmt::format("standard input: line {}", number);
    const nlohmann::json value = parse_json(line, where);
    nlohmann::json result;
    if (options.decode) {
      result =
          tokenizer.decode(ids_of(value, where, kAnyId), options.no_special);
    } else {
      NIBBLE_CHECK(value.is_string(),
                   kCorruptData,
                   "{}: found {}, expected a JSON string",
                   where,
                   value.type_name());
      result = tokenizer.encode(value.get_ref<const std::string&>(),
                                !options.no_special);
    }
    print(
        result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    print("\n");
  }
}

int tokenize(const Options& options) {
  const text::Tokenizer tokenizer =
      text::load_tokenizer(model_directory(options.model));
  if (options.lines) {
    convert_lines(options, tokenizer);
    return kDone;
  }
  const Pair pair =
      convert(options, tokenizer, options.text ? *options.text : read_input());
  if (options.json) {
    print_json({{"ids", pair.ids}, {"text", pair.text}});
  } else if (options.decode) {
    print(pair.text + "\n");
  } else {
    print(fmt::format("{}\n", fmt::join(pair.ids, " ")));
  }
  return kDone;
}

}  // namespace

void add_tokenize(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command =
      add_command(app,
                  session,
                  "tokenize",
                  "Turns text into token ids, or ids into text",
                  "nibble tokenize models/fable-moe --text 'Once upon a time'",
                  [options](Session&) {
                    resolve(options->model);
                    return tokenize(*options);
                  });
  command.add_option("model", options->model, kModelHelp)
      ->required()
      ->type_name("MODEL");
  CLI::Option* text =
      command.add_option("--text", options->text, "Text (standard input)")
          ->type_name("TEXT");
  command.add_flag("--no-special",
                   options->no_special,
                   "Add no special tokens; with --decode, show none");
  command.add_flag("--decode", options->decode, "The input is token ids");
  CLI::Option* lines =
      command
          .add_flag("--lines",
                    options->lines,
                    "A JSON string a line in, a JSON array of ids a line out")
          ->excludes(text);
  command.add_flag("--json", options->json, "One JSON document")
      ->excludes(lines);
}

}  // namespace nibble::cli
